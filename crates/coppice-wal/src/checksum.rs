//! CRC-32C, eight bytes at a time ("slicing-by-8").

const POLYNOMIAL: u32 = 0x82F6_3B78;
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A checksum of bytes that come in pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checksum(u32);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(u32::MAX)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let at = |table: usize, value: u32| TABLES[table][(value & 0xff) as usize];
        let (eights, rest) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in eights {
            let low = self.0 ^ u32::from_le_bytes([*a, *b, *c, *d]);
            let high = u32::from_le_bytes([*e, *f, *g, *h]);
            self.0 = at(7, low) ^ at(6, low >> 8) ^ at(5, low >> 16) ^ at(4, low >> 24);
            self.0 ^= at(3, high) ^ at(2, high >> 8) ^ at(1, high >> 16) ^ at(0, high >> 24);
        }
        for byte in rest {
            self.0 = self.0 >> 8 ^ at(0, self.0 ^ u32::from(*byte));
        }
    }

    pub(crate) fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_checksum_of_castagnoli_however_the_bytes_are_cut() {
        let bytes = b"123456789";
        for cut in 0..=bytes.len() {
            let mut checksum = Checksum::new();
            checksum.add(&bytes[..cut]);
            checksum.add(&bytes[cut..]);
            assert_eq!(checksum.value(), 0xE306_9283, "cut at {cut}");
        }
    }
}
