//! JSON with the stable keys of the command line contract: [`palisade_check::json`] makes the parts, here they become one object.

use std::io::{self, Write};

use serde::Serialize;

use super::Totals;

#[derive(Serialize)]
struct Summary {
    objects: usize,
    allowed: usize,
    denied: usize,
    skipped: usize,
    errors: usize,
}

pub(super) fn append(part: &str, any: &mut bool, out: &mut dyn Write) -> io::Result<()> {
    if part.is_empty() {
        return Ok(());
    }
    if *any {
        out.write_all(b",")?;
    }
    *any = true;
    out.write_all(part.as_bytes())
}

pub(super) fn finish(findings: &str, totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
    let Totals { objects, allowed, denied, skipped, errors, .. } = *totals;
    let summary = serde_json::to_string(&Summary { objects, allowed, denied, skipped, errors })?;
    writeln!(out, "],\n\"findings\":[{findings}],\n\"summary\":{summary}}}")
}
