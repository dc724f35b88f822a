//! A QR code as the parts of a picture in the page itself.

use std::fmt::Write as _;

use qrcode::{Color, EcLevel, QrCode};

/// Light modules around it (ISO/IEC 18004, 9.1).
const MARGIN: usize = 4;

/// What `<svg>` needs to draw it, one unit for each module.
#[derive(Debug)]
pub(crate) struct Qr {
    /// Width and height, margin included.
    pub(crate) size: usize,
    /// The dark modules, as the `d` of a path.
    pub(crate) path: String,
}

impl Qr {
    /// The code of a text; nothing dark if it is too long for one.
    pub(crate) fn of(text: &str) -> Self {
        let Ok(code) = QrCode::with_error_correction_level(text, EcLevel::M) else {
            return Self { size: 1, path: String::new() };
        };
        let mut path = String::new();
        for (row, modules) in code.to_colors().chunks(code.width()).enumerate() {
            let mut at = 0;
            for run in modules.chunk_by(|a, b| a == b) {
                if run[0] == Color::Dark {
                    let (x, y, width) = (at + MARGIN, row + MARGIN, run.len());
                    write!(path, "M{x} {y}h{width}v1h-{width}z").expect("a text can grow");
                }
                at += run.len();
            }
        }
        Self { size: code.width() + 2 * MARGIN, path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_three_corners_and_a_margin() {
        let qr = Qr::of("otpauth://totp/Coppice:ada%40example.com?secret=GEZDGNBV&issuer=Coppice");
        let right = qr.size - MARGIN - 7;
        assert!(qr.path.starts_with("M4 4h7v1h-7z"), "{}", qr.path);
        for corner in [format!("M{right} 4h7v1h-7z"), format!("M4 {}h7v1h-7z", qr.size - MARGIN - 1)] {
            assert!(qr.path.contains(&corner), "no {corner} in {}", qr.path);
        }
        let is_drawing = |byte: u8| byte.is_ascii_digit() || b"Mhvz -".contains(&byte);
        assert!(qr.path.bytes().all(is_drawing), "nothing of the text itself");
    }
}
