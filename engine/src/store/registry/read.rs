//! Reads of the registry. Each call sees a consistent snapshot.

use std::collections::HashMap;

use redb::{ReadableTable, TableDefinition};
use rye_compiler::semantics::ledger::Account;
use serde::de::DeserializeOwned;

use super::{Registry, ThreadRow, registry_error, tables};
use crate::store::StoreError;
use crate::thread_id::ThreadId;

const DOING: &str = "reading it";

impl Registry {
    /// Returns one thread's row; `None` if the registry has no row of the thread.
    pub fn thread(&self, thread: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.row(tables::THREADS, thread.as_str())
    }

    /// Returns every thread's row, by id.
    pub fn threads(&self) -> Result<Vec<ThreadRow>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::THREADS).map_err(registry_error(DOING))?;
            let mut rows = Vec::new();
            for row in table.iter().map_err(registry_error(DOING))? {
                let (_, bytes) = row.map_err(registry_error(DOING))?;
                rows.push(parse(bytes.value())?);
            }
            Ok(rows)
        })
    }

    /// Returns the registry rows of the threads with the status `created` or `running`, by id.
    pub fn active(&self) -> Result<Vec<ThreadRow>, StoreError> {
        self.read(|transaction| {
            let active = transaction.open_table(tables::ACTIVE).map_err(registry_error(DOING))?;
            let threads = transaction.open_table(tables::THREADS).map_err(registry_error(DOING))?;
            let mut rows = Vec::new();
            for id in active.iter().map_err(registry_error(DOING))? {
                let (id, _) = id.map_err(registry_error(DOING))?;
                if let Some(bytes) = threads.get(id.value()).map_err(registry_error(DOING))? {
                    rows.push(parse(bytes.value())?);
                }
            }
            Ok(rows)
        })
    }

    /// Returns the children of a thread and their spawn numbers, sorted by spawn number.
    pub fn children(&self, parent: &ThreadId) -> Result<Vec<(u64, ThreadId)>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
            let mut children = Vec::new();
            for edge in
                table.range((parent.as_str(), 0)..=(parent.as_str(), u64::MAX)).map_err(registry_error(DOING))?
            {
                let (key, child) = edge.map_err(registry_error(DOING))?;
                children.push((key.value().1, parse_id(child.value())?));
            }
            Ok(children)
        })
    }

    /// Returns the child that `parent` started with the number `spawn`; `None` if there is no such child.
    pub fn child(&self, parent: &ThreadId, spawn: u64) -> Result<Option<ThreadId>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::CHILDREN).map_err(registry_error(DOING))?;
            let child = table.get((parent.as_str(), spawn)).map_err(registry_error(DOING))?;
            child.map(|child| parse_id(child.value())).transpose()
        })
    }

    /// Returns a thread's ledger account; `None` if it has none.
    pub fn account(&self, thread: &ThreadId) -> Result<Option<Account>, StoreError> {
        self.row(tables::ACCOUNTS, thread.as_str())
    }

    /// Returns the ledger accounts of all threads, by the id of the thread, from one snapshot.
    pub fn accounts(&self) -> Result<HashMap<String, Account>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::ACCOUNTS).map_err(registry_error(DOING))?;
            let mut accounts = HashMap::new();
            for account in table.iter().map_err(registry_error(DOING))? {
                let (thread, bytes) = account.map_err(registry_error(DOING))?;
                accounts.insert(thread.value().to_owned(), parse(bytes.value())?);
            }
            Ok(accounts)
        })
    }

    fn row<T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, &str, &[u8]>,
        key: &str,
    ) -> Result<Option<T>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(table).map_err(registry_error(DOING))?;
            let row = table.get(key).map_err(registry_error(DOING))?;
            row.map(|bytes| parse(bytes.value())).transpose()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
impl Registry {
    /// Dumps everything as one text, for comparing two registries.
    pub(crate) fn dump(&self) -> Result<String, StoreError> {
        self.read(|transaction| {
            use std::fmt::Write as _;
            let mut dump = String::new();
            for table in [tables::THREADS, tables::ACCOUNTS] {
                for row in transaction
                    .open_table(table)
                    .map_err(registry_error(DOING))?
                    .iter()
                    .map_err(registry_error(DOING))?
                {
                    let (key, value) = row.map_err(registry_error(DOING))?;
                    writeln!(dump, "{} {}", key.value(), String::from_utf8_lossy(value.value())).unwrap();
                }
            }
            for row in transaction
                .open_table(tables::ACTIVE)
                .map_err(registry_error(DOING))?
                .iter()
                .map_err(registry_error(DOING))?
            {
                writeln!(dump, "{}", row.map_err(registry_error(DOING))?.0.value()).unwrap();
            }
            for row in transaction
                .open_table(tables::CHILDREN)
                .map_err(registry_error(DOING))?
                .iter()
                .map_err(registry_error(DOING))?
            {
                let (key, child) = row.map_err(registry_error(DOING))?;
                writeln!(dump, "{:?} {}", key.value(), child.value()).unwrap();
            }
            for row in transaction
                .open_table(tables::ANSWERS)
                .map_err(registry_error(DOING))?
                .iter()
                .map_err(registry_error(DOING))?
            {
                let (key, value) = row.map_err(registry_error(DOING))?;
                writeln!(dump, "{:?} {}", key.value(), String::from_utf8_lossy(value.value())).unwrap();
            }
            Ok(dump)
        })
    }
}

/// Parses a stored row.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(registry_error("reading a row of it"))
}

/// Parses a stored thread id.
pub fn parse_id(text: &str) -> Result<ThreadId, StoreError> {
    ThreadId::parse(text).map_err(registry_error("reading a row of it"))
}
