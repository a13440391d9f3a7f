//! Whatever a file holds: no panic, and a fix never makes anything worse.

use std::sync::Arc;

use jiff::civil::date;
use palisade_cli::{
    fix::{FixOptions, fix_text},
    judge::{FileReport, Settings, judge_bytes, judge_text},
    render::human::{Style, diagnostics},
};
use palisade_model::compat::Compat;
use palisade_policy::standards::level::{Level, LevelVersion, Version};
use proptest::{collection::vec, prelude::*, sample::select};

fn settings(level: Level, compat: Compat) -> Settings {
    Settings::new(LevelVersion::new(level, Version::Latest), compat, date(2026, 1, 1))
}

/// Pieces that manifests, and mistakes in them, are made of.
const PIECES: &[&str] = &[
    "apiVersion: v1\n",
    "kind: Pod\n",
    "kind: List\n",
    "items:\n",
    "- ",
    "metadata:\n",
    "  annotations:\n",
    "    seccomp.security.alpha.kubernetes.io/pod: unconfined\n",
    "spec:\n",
    "  containers:\n",
    "  - name: c\n",
    "    securityContext:\n",
    "      privileged: true\n",
    "      capabilities: {add: [NET_RAW]}\n",
    "  hostPID: true\n",
    "  securityContext: &a\n",
    "    seccompProfile: {type: Unconfined}\n",
    "    securityContext: *a\n",
    "    <<: *a\n",
    "---\n",
    "...\n",
    "# palisade:ignore pss/privileged reason=x\n",
    "# comment\n",
    "\t",
    " ",
    "\n",
    "\r\n",
    "{",
    "}",
    "[",
    "]",
    ": ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "é日",
    "\u{feff}",
    "\0",
    "null",
    "{{ x }}",
    "!!str ",
    "- - ",
    "? ",
    "&b ",
    "*b",
];

fn text() -> impl Strategy<Value = String> {
    let pieces = vec(select(PIECES), 0..60).prop_map(|pieces| pieces.concat());
    let pod = include_str!("../../../../examples/manifests/web-deployment.yaml");
    let cron = include_str!("../../../../examples/manifests/report-cronjob.yaml");
    let mutated = (select(vec![pod, cron]), any::<prop::sample::Index>(), 0..40usize, select(PIECES))
        .prop_map(|(text, at, cut, piece)| {
            let mut characters: Vec<char> = text.chars().collect();
            let at = at.index(characters.len());
            let end = (at + cut).min(characters.len());
            characters.splice(at..end, piece.chars());
            characters.into_iter().collect::<String>()
        });
    prop_oneof![pieces, mutated]
}

fn errors(report: &FileReport) -> usize {
    report.diagnostics.iter().filter(|finding| finding.fix.is_some()).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_checked_or_rejected(bytes in vec(any::<u8>(), 0..300)) {
        let report = judge_bytes(&Arc::from("x"), &bytes, &settings(Level::Restricted, Compat::designs()), &[]);
        let mut drawn = String::new();
        diagnostics(&report.diagnostics, Style { color: true, width: Some(40) }, &mut drawn);
    }

    #[test]
    fn a_fix_never_makes_anything_worse(text in text(), designs in any::<bool>(), may_change in any::<bool>(), partial in any::<bool>()) {
        let options = FixOptions { may_change, partial };
        let compat = if designs { Compat::designs() } else { Compat::kubernetes(37) };
        let settings = settings(Level::Restricted, compat);
        let file: Arc<str> = Arc::from("x.yaml");
        let before = judge_text(&file, &text, &settings, &[]);
        let mut drawn = String::new();
        diagnostics(&before.diagnostics, Style::PLAIN, &mut drawn);
        let fixed = fix_text(&file, &text, &settings, &[], options);
        let Some(new) = fixed.text else { return Ok(()) };
        let after = judge_text(&file, &new, &settings, &[]);
        prop_assert_eq!(before.verdicts.len(), after.verdicts.len(), "{}", new);
        for (old, new) in before.verdicts.iter().zip(&after.verdicts) {
            prop_assert!(new.allowed || !old.allowed);
        }
        prop_assert!(errors(&after) < errors(&before), "{}", new);
        let again = fix_text(&file, &new, &settings, &[], options);
        prop_assert!(again.text.is_none(), "{}\n---\n{}", new, again.text.unwrap_or_default());
    }
}
