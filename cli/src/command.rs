//! The commands, a module for each. The function of a command receives the arguments and a [`crate::report::Printer`],
//! and returns the exit code.

#[cfg(feature = "acp")]
pub mod acp;
pub mod assert;
pub mod chat;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod eval;
pub mod explain;
pub mod fetch;
pub mod fmt;
pub mod graph;
pub mod init;
pub mod keys;
pub mod lock;
pub mod man;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod new;
pub mod plan;
pub mod providers;
pub mod run;
pub mod schema;
pub mod sign;
pub mod threads;
pub mod trust;
pub mod why;

use clap::ValueEnum;

use crate::CommandError;
use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::report::Printer;

pub fn run(args: Args, report: &Printer) -> Result<Exit, CommandError> {
    let global = &args.global;
    if !args.command.supports(global.format) {
        let name = global.format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        return Err(CommandError::usage(format!("this command does not support `--format {name}`")).with_help(
            "every command supports `human`, `plain` and `json`; `sarif` and `github` belong to `rye check`, \
                        `markdown` and `html` to `rye plan`",
        ));
    }
    match args.command {
        Command::Check(check) => check::run(&check, global, report),
        Command::Assert(assert) => assert::run(&assert, global, report),
        Command::Fmt(fmt) => fmt::run(&fmt, global, report),
        Command::Plan(plan) => plan::run(&plan, global, report),
        Command::Why(why) => why::run(&why, global, report),
        Command::Graph(graph) => graph::run(&graph, global, report),
        Command::Lock(lock) => lock::run(&lock, global, report),
        Command::Init(init) => init::run(&init, report),
        Command::New(new) => new::run(&new, global, report),
        Command::Fetch(fetch) => fetch::run(&fetch, global, report),
        #[cfg(feature = "mcp")]
        Command::Mcp(mcp) => mcp::run(&mcp, global, report),
        Command::Chat(chat) => chat::run(&chat, global, report),
        #[cfg(feature = "acp")]
        Command::Acp(acp) => acp::run(*acp, global, report),
        Command::Run(run) => run::run(&run, global, report),
        Command::Providers(providers) => providers::run(&providers, global, report),
        Command::Threads(threads) => threads::run(&threads, global, report),
        Command::Doctor(_) => doctor::run(global, report),
        Command::Trust(trust) => trust::run(&trust, global, report),
        Command::Keys(keys) => keys::run(&keys, report),
        Command::Sign(args) => sign::sign(&args, global, report),
        Command::Verify(args) => sign::verify(&args, global, report),
        Command::Eval(eval) => eval::run(&eval, report),
        Command::Explain(explain) => explain::run(&explain, report),
        Command::Completions(completions) => completions::run(&completions),
        Command::Man(man) => man::run(&man, report),
        Command::Schema(schema) => schema::run(&schema, report),
    }
}
