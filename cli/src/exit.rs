//! Exit codes (`language.md` 14).

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Fine,
    /// Diagnostics with errors, or a thread that failed.
    Failed,
    Usage,
    /// A comparison of plans found wider permissions or spending.
    Widened,
    /// A limit or the budget was exceeded.
    Limit,
    /// Refused by a permission or a signature.
    Refused,
    Cancelled,
}

impl Exit {
    /// Converts the exit code of another `rye` process.
    pub fn from_code(code: i32) -> Self {
        match code {
            0 => Self::Fine,
            2 => Self::Usage,
            3 => Self::Widened,
            4 => Self::Limit,
            5 => Self::Refused,
            130 => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Widened => 3,
            Exit::Limit => 4,
            Exit::Refused => 5,
            Exit::Cancelled => 130,
        })
    }
}
