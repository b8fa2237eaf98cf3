//! Time-ordered UUIDs (version 7).

use super::StoreError;

/// Creates an id. Ids sort by the millisecond of their creation. `now` is in milliseconds since 1970.
pub(crate) fn new_uuid_v7(now: i64) -> Result<String, StoreError> {
    let mut random = [0_u8; 10];
    getrandom::fill(&mut random).map_err(|error| StoreError::InvalidId {
        reason: format!("cannot get random bytes from the system: {error}"),
    })?;
    let millis = u64::try_from(now).unwrap_or(0);
    Ok(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string())
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
