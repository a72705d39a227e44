//! Every image of the zoo, compared whole with its oracle.

use extern4_testkit::tree::assert_same;
use extern4_testkit::zoo::SPECS;

use crate::walk;

#[test]
fn every_image_is_what_its_oracle_sees() {
    for spec in SPECS.iter().filter(|spec| spec.can_run()) {
        let image = spec.build();
        let theirs = spec.oracle_tree(&image);
        let ours = walk::tree(&walk::open(&image.path));
        assert_same(spec.name, &ours, &theirs);
    }
}
