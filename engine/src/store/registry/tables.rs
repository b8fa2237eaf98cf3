//! The tables of the registry. Rows are JSON, so that a later version can add a field.

use redb::{TableDefinition, WriteTransaction};

use super::registry_error;
use crate::store::StoreError;

/// Table with the format version, under the key `FORMAT`.
pub const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Key of the format version.
pub const FORMAT: &str = "format";
/// Thread id → [`super::ThreadRow`].
pub const THREADS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("threads");
/// Ids of the threads with the status `created` or `running`.
pub const ACTIVE: TableDefinition<'_, &str, ()> = TableDefinition::new("active");
/// Parent and spawn number → child.
pub const CHILDREN: TableDefinition<'_, (&str, u64), &str> = TableDefinition::new("children");
/// Thread id → its account in the ledger.
pub const ACCOUNTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("accounts");
/// Thread id and key of a ledger step → the ledger's answer to the operation of the step.
pub const ANSWERS: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("answers");

/// Creates all tables, so that readers find them.
pub fn create_all(transaction: &WriteTransaction) -> Result<(), StoreError> {
    let doing = "making its tables";
    transaction.open_table(THREADS).map_err(registry_error(doing))?;
    transaction.open_table(ACTIVE).map_err(registry_error(doing))?;
    transaction.open_table(CHILDREN).map_err(registry_error(doing))?;
    transaction.open_table(ACCOUNTS).map_err(registry_error(doing))?;
    transaction.open_table(ANSWERS).map_err(registry_error(doing))?;
    Ok(())
}
