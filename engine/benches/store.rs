//! Measures the cost of durable operations and their lower bounds: a bare append with `fdatasync`, a bare commit of the
//! database, and a bare round trip over loopback. `cargo bench -p rye-engine` prints both;
//! `docs/explanation/performance.md` quotes the ratios.

#![expect(clippy::print_stderr, reason = "a bench that cannot go on says why")]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use divan::Bencher;
use redb::{Database, TableDefinition};
use rye_engine::store::{Change, Disk, RealDisk, Registry, ThreadRow, Transcript};
use rye_engine::thread_id::ThreadId;
use serde_json::json;

/// Approximate size of the transcript line of an event in a turn with tool calls, in bytes.
const LINE_BYTES: usize = 600;
const BYTES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("bytes");

fn main() {
    divan::main();
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap_or_else(|error| fail(&error))
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("the bench cannot go on: {error}");
    std::process::exit(1)
}

fn need<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(&error))
}

#[divan::bench]
fn floor_append_and_fdatasync(bencher: Bencher<'_, '_>) {
    let folder = folder();
    let mut file: File = need(OpenOptions::new().create(true).append(true).open(folder.path().join("log")));
    let line = [b'x'; LINE_BYTES];
    bencher.bench_local(|| {
        need(file.write_all(&line));
        need(file.sync_data());
    });
}

#[divan::bench]
fn transcript_append_and_sync(bencher: Bencher<'_, '_>) {
    let folder = folder();
    let disk: Arc<dyn Disk> = Arc::new(need(RealDisk::open(folder.path())));
    let thread = need(ThreadId::parse("bench-1").map_err(|invalid| invalid.reason));
    let mut transcript = need(Transcript::create(disk, &thread));
    let event = json!({ "type": "state_set", "key": "bench", "value": "x".repeat(LINE_BYTES) });
    bencher.bench_local(|| {
        need(transcript.append_sealed(std::slice::from_ref(&event), 1_700_000_000_000, None));
        need(transcript.sync());
    });
}

#[divan::bench]
fn floor_database_commit(bencher: Bencher<'_, '_>) {
    let folder = folder();
    let database = need(Database::create(folder.path().join("bare.redb")));
    let value = [b'x'; LINE_BYTES];
    bencher.bench_local(|| {
        let transaction = need(database.begin_write());
        {
            let mut table = need(transaction.open_table(BYTES));
            need(table.insert("thread", value.as_slice()));
        }
        need(transaction.commit());
    });
}

#[divan::bench]
fn registry_commit(bencher: Bencher<'_, '_>) {
    let folder = folder();
    let disk: Arc<dyn Disk> = Arc::new(need(RealDisk::open(folder.path())));
    let registry = need(Registry::open(disk));
    let thread = need(ThreadId::parse("bench-1").map_err(|invalid| invalid.reason));
    bencher.bench_local(|| {
        let row = ThreadRow::new(thread.clone(), "bench", 1_700_000_000_000);
        need(registry.commit(&[Change::Put(Box::new(row))]));
    });
}

#[divan::bench]
fn floor_loopback_round_trip(bencher: Bencher<'_, '_>) {
    let listener = need(TcpListener::bind("127.0.0.1:0"));
    let address = need(listener.local_addr());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = need(stream);
            let mut request = [0; 1024];
            // A closed connection ends this exchange, not the benchmark.
            if stream.read(&mut request).is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").ok();
            }
        }
    });
    bencher.bench_local(|| {
        let mut stream = need(TcpStream::connect(address));
        need(stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"));
        let mut answer = String::new();
        need(stream.read_to_string(&mut answer));
        answer.len()
    });
}
