//! Time-ordered UUIDs (version 7).

use super::StoreError;

/// Creates an id. Ids sort by the millisecond of their creation. `now` is in milliseconds since 1970.
pub(crate) fn new_uuid_v7(now: i64) -> Result<String, StoreError> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::InvalidId {
        reason: format!("cannot get random bytes from the system: {error}"),
    })?;
    let mut number = u128::from_be_bytes(bytes) >> 48;
    number |= u128::from(u64::try_from(now).unwrap_or(0) & 0xffff_ffff_ffff) << 80;
    number = number & !(0xf << 76) | 7 << 76;
    number = number & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{number:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::new_uuid_v7;

    #[test]
    fn ids_are_version_7_and_sort_by_time() {
        let first = new_uuid_v7(1_739_820_456_123).unwrap();
        let second = new_uuid_v7(1_739_820_456_124).unwrap();
        assert!(first < second, "{first} {second}");
        assert_eq!(first.len(), 36);
        assert_eq!(first.get(..13), Some("01951561-58bb"), "{first}");
        assert_eq!(first.get(14..15), Some("7"));
        assert!(matches!(first.get(19..20), Some("8" | "9" | "a" | "b")));
        assert_ne!(new_uuid_v7(0).unwrap(), new_uuid_v7(0).unwrap());
    }
}
