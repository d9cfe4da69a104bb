//! The same calls on a volume and on a bare directory of the same ext4: `alike.py` prints what each answers.

use std::path::Path;

use crate::loops::{LoopDisk, subdir};
use crate::rig::{Io, Rig, in_both_io_modes};
use crate::run::python;

in_both_io_modes! {
    the_times_of_files_and_directories_move_when_those_of_ext4_move,
    names_that_are_too_long_missing_or_no_directories_get_the_errno_of_ext4,
    what_cannot_be_done_to_a_path_gets_the_errno_of_ext4,
    what_cannot_be_done_to_a_handle_gets_the_errno_of_ext4,
    attributes_of_clients_have_the_sizes_and_errors_of_ext4,
    everything_that_an_unlinked_file_can_do_on_ext4_it_can_do_here,
    a_program_that_runs_cannot_be_written_and_one_that_is_written_cannot_run,
    locks_between_processes_are_those_of_ext4,
    maps_show_holes_cuts_and_the_writes_of_others_as_on_ext4,
    thousands_of_random_calls_get_the_answers_of_ext4,
}

/// Runs a part of `alike.py` on both, over one disk and over three.
fn alike(io: Io, part: &str) {
    let ext4 = LoopDisk::ext4("1G", &[]);
    for disks in [1, 3] {
        let mut rig = Rig::bare();
        rig.use_disks(&(0..disks).map(|n| subdir(&ext4.path(), &format!("{disks}-{n}"))).collect::<Vec<_>>());
        rig.mount(io.option());
        let bare = subdir(&ext4.path(), &format!("bare-{disks}"));
        let calls = |dir: &Path| python(include_str!("alike.py"), &[dir, part.as_ref()]);
        let (ours, wanted) = (calls(&rig.mountpoint()), calls(&bare));
        assert!(wanted.lines().count() > 5, "{wanted}");
        for (ours, wanted) in ours.lines().zip(wanted.lines()) {
            assert_eq!(ours, wanted, "over {disks} disks");
        }
        assert_eq!(ours.lines().count(), wanted.lines().count());
    }
}

fn the_times_of_files_and_directories_move_when_those_of_ext4_move(io: Io) {
    alike(io, "times");
}

fn names_that_are_too_long_missing_or_no_directories_get_the_errno_of_ext4(io: Io) {
    alike(io, "names");
}

fn what_cannot_be_done_to_a_path_gets_the_errno_of_ext4(io: Io) {
    alike(io, "errors");
}

fn what_cannot_be_done_to_a_handle_gets_the_errno_of_ext4(io: Io) {
    alike(io, "handles");
}

fn attributes_of_clients_have_the_sizes_and_errors_of_ext4(io: Io) {
    alike(io, "xattrs");
}

fn everything_that_an_unlinked_file_can_do_on_ext4_it_can_do_here(io: Io) {
    alike(io, "unlinked");
}

fn a_program_that_runs_cannot_be_written_and_one_that_is_written_cannot_run(io: Io) {
    alike(io, "running");
}

fn locks_between_processes_are_those_of_ext4(io: Io) {
    alike(io, "locks");
}

fn maps_show_holes_cuts_and_the_writes_of_others_as_on_ext4(io: Io) {
    alike(io, "maps");
}

fn thousands_of_random_calls_get_the_answers_of_ext4(io: Io) {
    alike(io, "anything");
}
