//! Reading the registry. Each call sees one moment of it.

use redb::{ReadableTable, TableDefinition};
use rye_compiler::semantics::ledger::Account;
use serde::de::DeserializeOwned;

use super::{Registry, ThreadRow, failed, tables};
use crate::store::StoreError;
use crate::thread_id::ThreadId;

const DOING: &str = "reading it";

impl Registry {
    /// One thread's row.
    pub fn thread(&self, thread: &ThreadId) -> Result<Option<ThreadRow>, StoreError> {
        self.row(tables::THREADS, thread.as_str())
    }

    /// Every thread, by id.
    pub fn threads(&self) -> Result<Vec<ThreadRow>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::THREADS).map_err(failed(DOING))?;
            let mut rows = Vec::new();
            for row in table.iter().map_err(failed(DOING))? {
                let (_, bytes) = row.map_err(failed(DOING))?;
                rows.push(parse(bytes.value())?);
            }
            Ok(rows)
        })
    }

    /// The threads that are not over, by id.
    pub fn active(&self) -> Result<Vec<ThreadRow>, StoreError> {
        self.read(|transaction| {
            let active = transaction.open_table(tables::ACTIVE).map_err(failed(DOING))?;
            let threads = transaction.open_table(tables::THREADS).map_err(failed(DOING))?;
            let mut rows = Vec::new();
            for id in active.iter().map_err(failed(DOING))? {
                let (id, _) = id.map_err(failed(DOING))?;
                if let Some(bytes) = threads.get(id.value()).map_err(failed(DOING))? {
                    rows.push(parse(bytes.value())?);
                }
            }
            Ok(rows)
        })
    }

    /// The children a thread has spawned, with their numbers, in order.
    pub fn children(&self, parent: &ThreadId) -> Result<Vec<(u64, ThreadId)>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::CHILDREN).map_err(failed(DOING))?;
            let mut children = Vec::new();
            for edge in table.range((parent.as_str(), 0)..=(parent.as_str(), u64::MAX)).map_err(failed(DOING))? {
                let (key, child) = edge.map_err(failed(DOING))?;
                children.push((key.value().1, id(child.value())?));
            }
            Ok(children)
        })
    }

    /// The parent's n-th child, if it was spawned.
    pub fn child(&self, parent: &ThreadId, spawn: u64) -> Result<Option<ThreadId>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(tables::CHILDREN).map_err(failed(DOING))?;
            let child = table.get((parent.as_str(), spawn)).map_err(failed(DOING))?;
            child.map(|child| id(child.value())).transpose()
        })
    }

    /// A thread's account in the ledger.
    pub fn account(&self, thread: &ThreadId) -> Result<Option<Account>, StoreError> {
        self.row(tables::ACCOUNTS, thread.as_str())
    }

    fn row<T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, &str, &[u8]>,
        key: &str,
    ) -> Result<Option<T>, StoreError> {
        self.read(|transaction| {
            let table = transaction.open_table(table).map_err(failed(DOING))?;
            let row = table.get(key).map_err(failed(DOING))?;
            row.map(|bytes| parse(bytes.value())).transpose()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
impl Registry {
    /// Everything it holds, as one text: two that hold the same tell the same.
    pub(crate) fn contents(&self) -> Result<String, StoreError> {
        self.read(|transaction| {
            use std::fmt::Write as _;
            let mut told = String::new();
            for table in [tables::THREADS, tables::ACCOUNTS] {
                for row in transaction.open_table(table).map_err(failed(DOING))?.iter().map_err(failed(DOING))? {
                    let (key, value) = row.map_err(failed(DOING))?;
                    writeln!(told, "{} {}", key.value(), String::from_utf8_lossy(value.value())).unwrap();
                }
            }
            for row in transaction.open_table(tables::ACTIVE).map_err(failed(DOING))?.iter().map_err(failed(DOING))? {
                writeln!(told, "{}", row.map_err(failed(DOING))?.0.value()).unwrap();
            }
            for row in transaction.open_table(tables::CHILDREN).map_err(failed(DOING))?.iter().map_err(failed(DOING))? {
                let (key, child) = row.map_err(failed(DOING))?;
                writeln!(told, "{:?} {}", key.value(), child.value()).unwrap();
            }
            for row in transaction.open_table(tables::ANSWERS).map_err(failed(DOING))?.iter().map_err(failed(DOING))? {
                let (key, value) = row.map_err(failed(DOING))?;
                writeln!(told, "{:?} {}", key.value(), String::from_utf8_lossy(value.value())).unwrap();
            }
            Ok(told)
        })
    }
}

/// A row as it was written.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(failed("reading a row of it"))
}

/// An id as it was written.
pub fn id(text: &str) -> Result<ThreadId, StoreError> {
    ThreadId::parse(text).map_err(failed("reading a row of it"))
}
