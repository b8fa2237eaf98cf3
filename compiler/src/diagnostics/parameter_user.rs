//! The part of a tool that could use a parameter, for the reports of unused parameters.

/// The part of a tool that could use a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterUser {
    Request,
    Command,
    Script,
}

impl ParameterUser {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Command => "command",
            Self::Script => "script",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Request => "not used in any part of the request",
            Self::Command => "no argument of the command uses this parameter",
            Self::Script => "the function does not read this parameter",
        }
    }

    /// Returns the help for a parameter that this part does not use.
    pub(super) fn help_for_unused(self, name: &str) -> String {
        let place = match self {
            Self::Request => "the URL, a header or the body",
            Self::Command => "an argument of `command`, pass all parameters as `{params_json}`",
            Self::Script => {
                return format!("read `{name}` from the first argument of the function, or remove the parameter");
            }
        };
        format!("write `{{{name}}}` into {place}, or remove the parameter")
    }
}
