//! Unified diffs of lines.
//!
//! Implements: `github.com/pmezard/go-difflib`, that is Python's `difflib` with its rule about popular lines, because
//! upstream's messages contain its output.

use std::collections::HashMap;
use std::fmt::Write as _;

/// The unified diff of two texts, with three lines of context and no file names.
pub(crate) fn unified(old: &str, new: &str) -> String {
    let (a, b) = (split(old), split(new));
    let mut out = String::new();
    for group in groups(&operations(&a, &b), 3) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let _ = writeln!(out, "@@ -{} +{} @@", range(first.a.0, last.a.1), range(first.b.0, last.b.1));
        for op in &group {
            if op.equal {
                a[op.a.0..op.a.1].iter().for_each(|line| push(&mut out, ' ', line));
            } else {
                a[op.a.0..op.a.1].iter().for_each(|line| push(&mut out, '-', line));
                b[op.b.0..op.b.1].iter().for_each(|line| push(&mut out, '+', line));
            }
        }
    }
    out
}

fn push(out: &mut String, sign: char, line: &str) {
    out.push(sign);
    out.push_str(line);
}

/// Lines with their line feed; the last one gets one too.
fn split(text: &str) -> Vec<String> {
    text.split('\n').map(|line| format!("{line}\n")).collect()
}

fn range(start: usize, end: usize) -> String {
    let length = end - start;
    match length {
        1 => (start + 1).to_string(),
        0 => format!("{start},0"),
        _ => format!("{},{length}", start + 1),
    }
}

#[derive(Debug, Clone, Copy)]
struct Op {
    equal: bool,
    a: (usize, usize),
    b: (usize, usize),
}

fn operations(a: &[String], b: &[String]) -> Vec<Op> {
    let mut index: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, line) in b.iter().enumerate() {
        index.entry(line).or_default().push(at);
    }
    // Lines that are everywhere do not locate anything.
    if b.len() >= 200 {
        let most = b.len() / 100 + 1;
        index.retain(|_, places| places.len() <= most);
    }
    let mut blocks = Vec::new();
    let mut queue = vec![(0, a.len(), 0, b.len())];
    while let Some((a_low, a_high, b_low, b_high)) = queue.pop() {
        let (i, j, size) = longest(a, b, &index, (a_low, a_high), (b_low, b_high));
        if size == 0 {
            continue;
        }
        blocks.push((i, j, size));
        if a_low < i && b_low < j {
            queue.push((a_low, i, b_low, j));
        }
        if i + size < a_high && j + size < b_high {
            queue.push((i + size, a_high, j + size, b_high));
        }
    }
    blocks.sort_unstable();
    blocks.push((a.len(), b.len(), 0));
    let (mut i, mut j) = (0, 0);
    let mut out: Vec<Op> = Vec::new();
    for (block_a, block_b, size) in blocks {
        if i < block_a || j < block_b {
            out.push(Op { equal: false, a: (i, block_a), b: (j, block_b) });
        }
        if size > 0 {
            match out.last_mut() {
                Some(last) if last.equal => {
                    last.a.1 = block_a + size;
                    last.b.1 = block_b + size;
                }
                _ => out.push(Op { equal: true, a: (block_a, block_a + size), b: (block_b, block_b + size) }),
            }
        }
        (i, j) = (block_a + size, block_b + size);
    }
    out
}

/// The longest run of equal lines, the first one if there are several.
fn longest(
    a: &[String],
    b: &[String],
    index: &HashMap<&str, Vec<usize>>,
    (a_low, a_high): (usize, usize),
    (b_low, b_high): (usize, usize),
) -> (usize, usize, usize) {
    let (mut best_a, mut best_b, mut best) = (a_low, b_low, 0);
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in a.iter().enumerate().take(a_high).skip(a_low) {
        let mut next = HashMap::new();
        for &j in index.get(line.as_str()).into_iter().flatten() {
            if j < b_low {
                continue;
            }
            if j >= b_high {
                break;
            }
            let length = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(j, length);
            if length > best {
                (best_a, best_b, best) = (i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    while best_a > a_low && best_b > b_low && a[best_a - 1] == b[best_b - 1] {
        (best_a, best_b, best) = (best_a - 1, best_b - 1, best + 1);
    }
    while best_a + best < a_high && best_b + best < b_high && a[best_a + best] == b[best_b + best] {
        best += 1;
    }
    (best_a, best_b, best)
}

/// Operations with a few equal lines around each change.
fn groups(ops: &[Op], context: usize) -> Vec<Vec<Op>> {
    let mut ops = ops.to_vec();
    if let Some(first) = ops.first_mut().filter(|op| op.equal) {
        let skip = (first.a.1 - first.a.0).saturating_sub(context);
        first.a.0 += skip;
        first.b.0 += skip;
    }
    if let Some(last) = ops.last_mut().filter(|op| op.equal) {
        let keep = (last.a.1 - last.a.0).min(context);
        last.a.1 = last.a.0 + keep;
        last.b.1 = last.b.0 + keep;
    }
    let mut out = Vec::new();
    let mut group: Vec<Op> = Vec::new();
    for op in ops {
        let length = op.a.1 - op.a.0;
        if op.equal && length > 2 * context {
            group.push(Op { equal: true, a: (op.a.0, op.a.0 + context), b: (op.b.0, op.b.0 + context) });
            out.push(std::mem::take(&mut group));
            group.push(Op { equal: true, a: (op.a.1 - context, op.a.1), b: (op.b.1 - context, op.b.1) });
        } else {
            group.push(op);
        }
    }
    if group.iter().any(|op| !op.equal) {
        out.push(group);
    }
    out.retain(|group| group.iter().any(|op| !op.equal));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_changes_with_context() {
        assert_eq!(
            unified("a\nb\nc\nd\ne\nf\ng", "a\nb\nc\nD\ne\nf\ng"),
            "@@ -1,7 +1,7 @@\n a\n b\n c\n-d\n+D\n e\n f\n g\n"
        );
        assert_eq!(unified("a", "a"), "");
        assert_eq!(unified("a\nc", "a\nb\nc"), "@@ -1,2 +1,3 @@\n a\n+b\n c\n");
    }
}
