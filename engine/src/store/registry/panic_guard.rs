//! A guard around the database, which panics on bytes that it did not write. A registry file may come from an untrusted
//! repository, so panics become errors and print nothing.
//!
//! After the database has panicked, its destructors can panic too, because of the state that the first panic left
//! behind. Rust aborts the program after such a second panic, before any code can return an error. The panic hook
//! therefore reports the error (`docs/decisions/0230-second-panic-of-the-database.md`).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Once, OnceLock};

use super::registry_error;
use crate::store::StoreError;

/// A function that reports an error and ends the process.
pub type AbortHandler = Box<dyn Fn(StoreError) + Send + Sync>;

static ABORT_HANDLER: OnceLock<AbortHandler> = OnceLock::new();

/// Sets the function that reports a registry error shortly before Rust aborts the program. Only the first call has an
/// effect. The function runs in a panic hook and must end the process. If the function returns, the process aborts.
/// Without a handler, opening the registry takes longer: the whole file is checked, so that damage is found before the
/// first write.
pub fn set_abort_handler(handler: AbortHandler) {
    // If a handler is set already, `set` fails and the first handler stays.
    let _ = ABORT_HANDLER.set(handler);
}

/// Returns true if the program has set a handler that reports a registry error before an abort.
pub fn has_abort_handler() -> bool {
    ABORT_HANDLER.get().is_some()
}

/// The innermost database operation that [`catch_panics`] runs on the current OS thread.
#[derive(Debug, Clone, Copy)]
struct GuardedCall {
    doing: &'static str,
    has_panicked: bool,
}

thread_local! {
    static GUARDED_CALL: Cell<Option<GuardedCall>> = const { Cell::new(None) };
}

/// Error for a registry file with invalid contents.
#[derive(Debug, thiserror::Error)]
#[error("the file's contents are not a valid database")]
struct InvalidDatabase;

/// Runs a database operation and converts a panic into an error.
pub fn catch_panics<T>(
    doing: &'static str,
    operation: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    install_panic_hook();
    let before = GUARDED_CALL.replace(Some(GuardedCall { doing, has_panicked: false }));
    // The database checks its own state on the next call, so asserting unwind safety is sound.
    let result = catch_unwind(AssertUnwindSafe(operation));
    GUARDED_CALL.set(before);
    result.unwrap_or_else(|_| Err(registry_error(doing)(InvalidDatabase)))
}

/// Installs a panic hook for the guarded calls of the database. The hook prints nothing for the first panic of a
/// guarded call, because the guard catches this panic. A second panic in the same call ends the program, so the hook
/// reports it to the abort handler. Panics outside of guarded calls are passed to the previous hook.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            match GUARDED_CALL.get() {
                None => before(panic),
                Some(call) if !call.has_panicked => {
                    GUARDED_CALL.set(Some(GuardedCall { has_panicked: true, ..call }));
                }
                // The database catches no panic in its destructors, so this panic ends the program.
                Some(call) => {
                    if let Some(report) = ABORT_HANDLER.get() {
                        report(registry_error(call.doing)(InvalidDatabase));
                    }
                }
            }
        }));
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::super::{Change, Registry, ThreadRow};
    use super::*;
    use crate::store::disk::{Disk, RealDisk};
    use crate::store::layout::REGISTRY;
    use crate::thread_id::ThreadId;

    #[test]
    fn panic_becomes_an_error_and_later_calls_succeed() {
        let broken = catch_panics("reading it", || -> Result<(), StoreError> {
            Vec::<()>::new().swap_remove(0);
            Ok(())
        });
        assert!(broken.unwrap_err().to_string().contains("run `rye threads repair` to rebuild it"));
        assert_eq!(catch_panics("reading it", || Ok(1)).unwrap(), 1);
        assert!(GUARDED_CALL.get().is_none());
    }

    /// A deterministic pseudo-random sequence.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end
        }
    }

    #[test]
    fn corrupt_registry_file_is_an_error_not_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let open = || -> Arc<dyn Disk> { Arc::new(RealDisk::open(folder.path()).unwrap()) };
        let registry = Registry::open(open()).unwrap();
        for n in 0..20 {
            registry.commit(&[row(n)]).unwrap();
        }
        drop(registry);
        let path = folder.path().join(REGISTRY);
        let good = fs::read(&path).unwrap();
        let (mut numbers, mut refused) = (Numbers(1), 0);
        for round in 0..150 {
            let mut bytes = good.clone();
            match round % 3 {
                0 => {
                    let (from, to) =
                        (numbers.below(bytes.len() / 4096) * 4096, numbers.below(bytes.len() / 4096) * 4096);
                    bytes.copy_within(from..from + 4096, to);
                }
                1 => bytes.truncate(numbers.below(good.len())),
                _ => {}
            }
            for _ in 0..numbers.below(40) {
                let at = numbers.below(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(numbers.below(256)).unwrap();
                }
            }
            fs::write(&path, &bytes).unwrap();
            let checked =
                Registry::open_read_only(open()).and_then(|found| found.map_or(Ok(0), |r| Ok(r.threads()?.len())));
            fs::write(&path, &bytes).unwrap();
            let written = Registry::open(open()).and_then(|registry| registry.commit(&[row(99)]).map(|_| registry));
            refused += usize::from(checked.is_err()) + usize::from(written.is_err());
        }
        assert!(refused > 20, "{refused}");
    }

    /// An environment variable that is set in the child process of the test below.
    const CHILD: &str = "TEST_SECOND_PANIC";
    /// Exit code of a child whose abort handler ran.
    const REPORTED: i32 = 7;

    /// A value of the database whose destructor fails on state that a panic left behind.
    struct BrokenTable;

    impl Drop for BrokenTable {
        fn drop(&mut self) {
            Vec::<()>::new().swap_remove(0);
        }
    }

    #[test]
    fn panic_during_unwinding_reaches_the_abort_handler() {
        if std::env::var_os(CHILD).is_some() {
            set_abort_handler(Box::new(|error| {
                let is_named = error.to_string().contains("run `rye threads repair` to rebuild it");
                std::process::exit(if is_named { REPORTED } else { 1 })
            }));
            let written = catch_panics("writing to it", || -> Result<(), StoreError> {
                let _table = BrokenTable;
                Vec::<()>::new().swap_remove(0);
                Ok(())
            });
            panic!("the process went on: {written:?}");
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::registry::panic_guard::tests::panic_during_unwinding_reaches_the_abort_handler"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.code(), Some(REPORTED), "{}", String::from_utf8_lossy(&child.stderr));
    }

    /// An environment variable with the folder of a damaged registry, for the child processes of the test below.
    const DAMAGED: &str = "TEST_DAMAGED_REGISTRY";
    /// An environment variable that is set in the child processes without an abort handler.
    const WITHOUT_HANDLER: &str = "TEST_WITHOUT_HANDLER";

    /// The end of a child process that opens a damaged registry and writes to it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum DamageEnd {
        Written = 0,
        NotOpened = 2,
        NotWritten = 3,
        Reported = 7,
    }

    fn row(n: usize) -> Change {
        Change::Put(Box::new(ThreadRow::new(ThreadId::parse(&format!("a-{n}")).unwrap(), "hello", 1)))
    }

    fn write_to_damaged_registry(folder: &Path) -> DamageEnd {
        if std::env::var_os(WITHOUT_HANDLER).is_none() {
            set_abort_handler(Box::new(|_| std::process::exit(DamageEnd::Reported as i32)));
        }
        match Registry::open(Arc::new(RealDisk::open(folder).unwrap())) {
            Ok(registry) if registry.commit(&[row(99)]).is_ok() => DamageEnd::Written,
            Ok(_) => DamageEnd::NotWritten,
            Err(_) => DamageEnd::NotOpened,
        }
    }

    /// Changes one byte of each page. With the handler of the command line, a change that shows only during the write
    /// is reported; without a handler, the check on opening finds it, and the process never aborts.
    #[test]
    fn registry_that_opens_and_fails_on_write_is_an_error_in_every_program() {
        if let Some(folder) = std::env::var_os(DAMAGED) {
            std::process::exit(write_to_damaged_registry(folder.as_ref()) as i32);
        }
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::open(Arc::new(RealDisk::open(folder.path()).unwrap())).unwrap();
        (0..20).for_each(|n| drop(registry.commit(&[row(n)]).unwrap()));
        drop(registry);
        let path = folder.path().join(REGISTRY);
        let good = fs::read(&path).unwrap();
        let mut late = 0;
        for page in (4096..good.len()).step_by(4096) {
            let mut bytes = good.clone();
            bytes[page + 0x1b] ^= 0x9a;
            let end = |without_handler: bool| {
                fs::write(&path, &bytes).unwrap();
                let mut child = std::process::Command::new(std::env::current_exe().unwrap());
                let name = "registry_that_opens_and_fails_on_write_is_an_error_in_every_program";
                child.args(["--exact", &format!("store::registry::panic_guard::tests::{name}")]);
                child.env(DAMAGED, folder.path());
                if without_handler {
                    child.env(WITHOUT_HANDLER, "1");
                }
                let output = child.output().unwrap();
                let ends = [DamageEnd::Written, DamageEnd::NotOpened, DamageEnd::NotWritten, DamageEnd::Reported];
                let end = ends.into_iter().find(|end| output.status.code() == Some(*end as i32));
                end.unwrap_or_else(|| panic!("page {page}: {}", String::from_utf8_lossy(&output.stderr)))
            };
            let (with_handler, without) = (end(false), end(true));
            let is_late = matches!(with_handler, DamageEnd::Reported | DamageEnd::NotWritten);
            late += usize::from(is_late);
            assert_ne!(without, DamageEnd::Reported, "page {page}");
            assert!(!is_late || without != DamageEnd::NotWritten, "page {page}: found during the write");
        }
        assert!(late > 0, "a change that only a write finds");
    }
}
