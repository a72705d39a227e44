//! A quick run of the whole lab: it measures, judges, and writes the report. The figures say
//! nothing here.

use std::fs;

use extern4_lab::access_counts::AccessCounts;
use extern4_lab::may_exec;
use extern4_lab::plan::{Plan, Side};
use extern4_lab::report::headline;
use extern4_measure::verdict::Outcome;

#[test]
fn a_quick_run_writes_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counted");
    fs::write(&file, "hit\textern4\t0\t0\nhit\tbaseline\t9\t3\n").unwrap();
    let plan = Plan::quick();
    let mut counted = AccessCounts::read(&file).unwrap();
    for (operation, instructions) in may_exec::REPEATED
        .into_iter()
        .zip([[30.0; 3], [200.0; 3], [500.0; 3]])
    {
        Side::ALL.iter().for_each(|side| {
            counted.note_instructions(operation, *side, instructions.into_iter().collect())
        });
    }
    let mut heard = 0;
    let chapters = extern4_lab::run(&plan, &counted, folder.path(), &mut |_| heard += 1).unwrap();
    assert!(heard > 0 && chapters.len() == 5);

    let rows = || chapters.iter().flat_map(|chapter| &chapter.rows);
    assert!(rows().all(|row| row.sides().all(|side| row.nanos(side).median() > Some(0.0))));
    assert!(rows().all(|row| row.samples(Side::Extern4).len() == plan.repetitions));
    let verdicts = || chapters.iter().flat_map(|chapter| &chapter.verdicts);
    assert!(
        verdicts().all(|verdict| verdict.outcome != Outcome::Open),
        "{:?}",
        verdicts().collect::<Vec<_>>()
    );

    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let report = read("report.md");
    let json = read("report.json");
    for chapter in &chapters {
        assert!(report.contains(&format!("## {}", chapter.title)));
        assert!(
            chapter
                .workloads()
                .iter()
                .all(|workload| report.contains(workload) && json.contains(workload))
        );
        let chart = read(&format!("{}.svg", chapter.name));
        assert!(chart.starts_with("<svg") && chart.contains("operations in a microsecond"));
    }
    let page = read("page/README.md");
    for chapter in &chapters {
        assert!(page.contains(&format!("## {}", chapter.title)) && !chapter.theirs.is_empty());
        assert!(read(&format!("page/{}.svg", chapter.name)).starts_with("<svg"));
        assert!(
            chapter
                .drawn
                .iter()
                .all(|drawn| chapter.workloads().contains(drawn))
        );
        let goals = chapter
            .verdicts
            .iter()
            .all(|verdict| page.contains(&verdict.found));
        assert!(
            goals
                && chapter
                    .table
                    .as_ref()
                    .is_some_and(|table| page.contains(&table.markdown()))
        );
    }
    assert!(
        page.contains(" load ") && page.lines().count() <= 110,
        "{page}"
    );
    assert!(headline::text(&chapters).contains("x baseline"));
}
