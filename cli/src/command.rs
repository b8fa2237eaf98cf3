//! The commands, one file each. A command gets its arguments and the report, and answers an exit code.

pub mod completions;
pub mod eval;
pub mod schema;

use crate::Failure;
use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::report::Report;

pub fn run(args: Args, report: &Report) -> Result<Exit, Failure> {
    match args.command {
        Command::Eval(eval) => eval::run(&eval, report),
        Command::Completions(completions) => completions::run(&completions),
        Command::Schema(schema) => schema::run(&schema, report),
    }
}
