//! The properties of the algebra of profiles over as many random pairs as the first argument gives.

#![expect(clippy::print_stdout, reason = "a report on the terminal")]
#![allow(missing_docs, reason = "not a library")]

#[path = "../tests/it/algebra.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "it is a test, and the example uses a part of it")]
mod algebra;

use std::{cell::Cell, process::ExitCode};

use proptest::test_runner::{Config, TestRunner};

fn main() -> ExitCode {
    let pairs = std::env::args().nth(1).and_then(|pairs| pairs.parse().ok()).unwrap_or(1_000_000);
    let total = Cell::new(algebra::Tally::default());
    let config = Config { cases: pairs, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&algebra::pair(), |(first, second, more)| {
        let own = algebra::check(&first, &second, &more)?;
        let sum = total.get();
        total.set(algebra::Tally {
            calls: sum.calls + own.calls,
            contradictions: sum.contradictions + own.contradictions,
            inexpressible: sum.inexpressible + own.inexpressible,
            complex: sum.complex + own.complex,
            results: sum.results + own.results,
        });
        Ok(())
    });
    let algebra::Tally { calls, contradictions, inexpressible, complex, results } = total.get();
    println!(
        "{pairs} pairs, {contradictions} of them with contradicting rules: {results} results exact in {calls} answers, {inexpressible} that no profile expresses, {complex} with too many rules"
    );
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
