//! Exact decimals: how much of something, and what it costs.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::{BigInt, Sign};

/// An exact decimal number.
pub type Decimal = BigDecimal;
/// A whole number of any size.
pub type Whole = BigInt;

/// A fraction with so many decimals, rounded once: to the nearest, and from the
/// middle to the even one.
///
/// # Panics
/// When the denominator is not greater than zero.
pub fn rounded(numerator: &Whole, denominator: &Whole, decimals: u32) -> Decimal {
    assert!(denominator.sign() == Sign::Plus, "a denominator is greater than zero");
    let scaled = numerator * Whole::from(10).pow(decimals);
    let (mut quotient, remainder) = (&scaled / denominator, &scaled % denominator);
    let twice = Whole::from(remainder.magnitude() * 2_u32);
    let is_up = match twice.cmp(denominator) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => quotient.bit(0),
        std::cmp::Ordering::Greater => true,
    };
    if is_up {
        quotient += if scaled.sign() == Sign::Minus { -1 } else { 1 };
    }
    Decimal::new(quotient, i64::from(decimals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_rounded_once_and_from_the_middle_to_the_even_one() {
        let text = |numerator: i64, denominator: i64, decimals| {
            rounded(&numerator.into(), &denominator.into(), decimals).to_plain_string()
        };
        assert_eq!(text(1, 3, 6), "0.333333");
        assert_eq!(text(2, 3, 2), "0.67");
        assert_eq!([text(5, 1000, 2), text(15, 1000, 2), text(25, 1000, 2)], ["0.00", "0.02", "0.02"]);
        assert_eq!([text(-15, 1000, 2), text(-16, 1000, 2), text(-14, 1000, 2)], ["-0.02", "-0.02", "-0.01"]);
        assert_eq!(text(7, 1, 0), "7");
    }
}
