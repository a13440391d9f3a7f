//! A text in and a text out of WebAssembly, in words of four bytes.
//!
//! A module can only pass numbers. Pointers into its memory would need unsafe code, and a page could get them wrong; words through two
//! functions need none, and a megabyte of them takes some milliseconds. A page calls `palisade_start`, `palisade_write` for each
//! word, `palisade_run`, which returns the number of bytes of the response, and `palisade_read` for each of its words.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longer requests are not taken: the engine has limits of its own, and a page is for a manifest.
const MAX_BYTES: usize = 16 << 20;

struct Exchange {
    request: Vec<u8>,
    response: Vec<u8>,
}

static EXCHANGE: Mutex<Exchange> = Mutex::new(Exchange { request: Vec::new(), response: Vec::new() });

fn exchange() -> MutexGuard<'static, Exchange> {
    // After a panic, which ends a module, nothing is read from here.
    EXCHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a request.
#[unsafe(no_mangle)]
pub extern "C" fn palisade_start() {
    let mut exchange = exchange();
    exchange.request.clear();
    exchange.response.clear();
}

/// Appends the first `count` bytes of a word in little-endian order, at most four; returns how many were taken.
#[unsafe(no_mangle)]
pub extern "C" fn palisade_write(word: u32, count: u32) -> u32 {
    let mut exchange = exchange();
    let count = count.min(4);
    if exchange.request.len() >= MAX_BYTES {
        return 0;
    }
    exchange.request.extend(word.to_le_bytes().into_iter().zip(0..count).map(|(byte, _)| byte));
    count
}

/// Answers the request; the number of bytes of the response.
#[unsafe(no_mangle)]
pub extern "C" fn palisade_run() -> u32 {
    let request = std::mem::take(&mut exchange().request);
    let response = match std::str::from_utf8(&request) {
        Ok(text) => crate::response(text),
        Err(_) => "{\"error\":\"the request is not UTF-8\"}".to_owned(),
    };
    let mut exchange = exchange();
    exchange.response = response.into_bytes();
    // A page reads four gigabytes of no response.
    u32::try_from(exchange.response.len()).unwrap_or(0)
}

/// A word of the response, in little-endian order; what is behind its end is 0.
#[unsafe(no_mangle)]
pub extern "C" fn palisade_read(index: u32) -> u32 {
    let exchange = exchange();
    let at = usize::try_from(index).map_or(usize::MAX, |index| index.saturating_mul(4));
    let rest = exchange.response.get(at..).unwrap_or_default();
    let mut word = [0; 4];
    word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    u32::from_le_bytes(word)
}
