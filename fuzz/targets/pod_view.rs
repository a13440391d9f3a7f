#![no_main]
//! Any YAML: whatever can be read as a pod is prepared, synced, validated, judged and explained without a panic, under
//! every release and the designs, and what the API server writes does not make it write again.

use libfuzzer_sys::fuzz_target;
use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    lower::lower,
    pod::Pod,
    prepare::{Prepared, Subject},
    validation::validate_create,
    warnings::warnings,
};
use palisade_policy::standards::{
    evaluator::Evaluator,
    level::{Level, LevelVersion, Version},
};
use palisade_yaml::{Limits, parse};

fuzz_target!(|text: &str| {
    let parsed = parse(text, &Limits::default());
    for document in &parsed.documents {
        let Ok(pod) = document.deserialize::<Pod<'_>>() else { continue };
        for compat in [19, 24, 27, 30, 37].map(Compat::kubernetes).into_iter().chain([Compat::designs()]) {
            let pod = Prepared::new(pod.clone(), Subject::Pod, &compat);
            let again = Prepared::new(pod.pod().clone(), Subject::Pod, &compat);
            assert!(again.changes().is_empty(), "a prepared pod stays as it is");
            for problem in validate_create(&pod) {
                assert!(!problem.to_string().is_empty());
            }
            let _ = (warnings(&pod), lower(&pod.view()));
            for context in effective_contexts(&pod) {
                assert_eq!(context.rows().len(), 26);
            }
            let evaluator = Evaluator::of(&compat);
            for level in [Level::Baseline, Level::Restricted] {
                let outcome = evaluator.evaluate(LevelVersion::new(level, Version::Latest), &pod);
                assert_eq!(outcome.allowed(), outcome.details().is_empty());
            }
        }
    }
});
