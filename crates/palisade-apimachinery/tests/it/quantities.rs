//! Quantities by example.
//!
//! Implements: "Quantity", <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

use std::cmp::Ordering;

use palisade_base::quantity::{Quantity, QuantityError};

#[test]
fn quantities_are_written_in_canonical_form() {
    for (case, text, canonical) in [
        ("zero", "0", "0"),
        ("a unit of zero is dropped", "0Ki", "0"),
        ("a sign", "+1", "1"),
        ("leading zeros", "0010", "10"),
        ("trailing zeros", "1.500", "1500m"),
        ("no whole part", ".5", "500m"),
        ("no fraction", "1.", "1"),
        ("thousandths become whole", "1000m", "1"),
        ("thousandths stay", "1500m", "1500m"),
        ("the largest unit without a fraction", "1000k", "1M"),
        ("decimal units", "1500k", "1500k"),
        ("binary units stay binary", "1024Ki", "1Mi"),
        ("a fraction of a binary unit", "1.5Gi", "1536Mi"),
        ("a fraction of a byte is rounded up", "0.5Ki", "512"),
        ("whole numbers are decimal", "1024", "1024"),
        ("an exponent stays one", "1e3", "1e3"),
        ("an exponent is a multiple of three", "12e4", "120e3"),
        ("the exponent in upper case", "1E3", "1e3"),
        ("exa, not an exponent", "1E", "1E"),
        ("negative", "-1.5Ki", "-1536"),
        ("millionths", "10u", "10u"),
        ("billionths", "1n", "1n"),
        ("less than a billionth is rounded up", "0.1n", "1n"),
        ("and away from zero", "-0.1n", "-1n"),
    ] {
        assert_eq!(
            Quantity::parse(text).map(|quantity| quantity.to_string()),
            Ok(canonical.to_owned()),
            "{case}: {text}"
        );
    }
}

#[test]
fn texts_that_are_no_quantity_are_rejected() {
    for (text, expected) in [
        ("", QuantityError::Format),
        ("1 Ki", QuantityError::Format),
        ("Ki1", QuantityError::Suffix),
        ("1.2.3", QuantityError::Format),
        ("1,5", QuantityError::Format),
        ("0x10", QuantityError::Format),
        ("1ki", QuantityError::Suffix),
        ("1mi", QuantityError::Suffix),
        ("1KK", QuantityError::Suffix),
        ("1e", QuantityError::Suffix),
        ("1K", QuantityError::Suffix),
    ] {
        assert_eq!(Quantity::parse(text).map(|quantity| quantity.to_string()), Err(expected), "{text:?}");
    }
}

#[test]
fn quantities_compare_and_add_by_amount() {
    for (left, right, expected) in [
        ("1", "1000m", Ordering::Equal),
        ("1Ki", "1024", Ordering::Equal),
        ("1Ki", "1k", Ordering::Greater),
        ("1e3", "1k", Ordering::Equal),
        ("-1", "0", Ordering::Less),
        ("1n", "1u", Ordering::Less),
        ("9E", "8Ei", Ordering::Less),
    ] {
        let (left_amount, right_amount) = (Quantity::parse(left).unwrap(), Quantity::parse(right).unwrap());
        assert_eq!(left_amount.cmp(&right_amount), expected, "{left} and {right}");
    }
    for (left, right, sum, difference) in
        [("1", "500m", "1500m", "500m"), ("1Gi", "1Mi", "1025Mi", "1023Mi"), ("1", "2", "3", "-1")]
    {
        let (left_amount, right_amount) = (Quantity::parse(left).unwrap(), Quantity::parse(right).unwrap());
        assert_eq!(left_amount.plus(right_amount).to_string(), sum, "{left} + {right}");
        assert_eq!(left_amount.minus(right_amount).to_string(), difference, "{left} - {right}");
    }
    for (text, milli, whole) in [("1500m", 1500, 2), ("1", 1000, 1), ("1u", 1, 1), ("-1500m", -1500, -1)] {
        let amount = Quantity::parse(text).unwrap();
        assert_eq!((amount.milli(), amount.whole()), (milli, whole), "{text}");
    }
}
