//! Exit codes (`language.md` 14).

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    /// Diagnostics with errors, or a thread that failed.
    Failed,
    Usage,
    /// A comparison of plans found wider permissions or spending.
    PermissionsWidened,
    /// A limit or the budget was exceeded.
    Limit,
    /// A refusal: a permission or a valid signature is missing, or a plan differs from the lock file.
    Refused,
    Cancelled,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::PermissionsWidened => 3,
            Self::Limit => 4,
            Self::Refused => 5,
            Self::Cancelled => 130,
        }
    }

    /// Converts the exit code of another `rye` process. An unknown code becomes `Failed`.
    pub fn from_code(code: i32) -> Self {
        match code {
            0 => Self::Success,
            2 => Self::Usage,
            3 => Self::PermissionsWidened,
            4 => Self::Limit,
            5 => Self::Refused,
            130 => Self::Cancelled,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
