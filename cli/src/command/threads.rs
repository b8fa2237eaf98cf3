//! `rye threads list|show|transcript`: what ran, how it stands, what it cost, what happened.

mod book;
mod list;
mod show;
mod transcript;

use clap::{Args, Subcommand};

use crate::Failure;
use crate::args::Global;
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

pub use book::Book;
pub use list::{CostOutput, ListOutput};
pub use show::{ErrorOutput, ShowOutput};

#[derive(Debug, Args)]
pub struct ThreadsArgs {
    #[command(subcommand)]
    command: ThreadsCommand,
}

#[derive(Debug, Subcommand)]
enum ThreadsCommand {
    /// Every thread of the project, the newest first
    List(list::ListArgs),
    /// One thread: status, limits, capabilities, cost, and its place among the others
    Show(show::ShowArgs),
    /// Everything that happened in a thread
    Transcript(transcript::TranscriptArgs),
}

pub fn run(args: &ThreadsArgs, global: &Global, report: &Report) -> Result<Exit, Failure> {
    let book = Book::open(&Spaces::find(global.project.as_deref())?.project)?;
    if let Some(trouble) = book.trouble() {
        report.note(&format!("{trouble}; reading the transcripts instead"));
    }
    match &args.command {
        ThreadsCommand::List(args) => list::run(args, &book, report),
        ThreadsCommand::Show(args) => show::run(args, &book, report),
        ThreadsCommand::Transcript(args) => transcript::run(args, &book, report),
    }
}
