//! Backing ids: how the bytes of each open inode travel.
//!
//! The kernel wants one io mode and one backing id an inode at a time (an open with another one is EIO), so all handles of
//! an inode share what its first one got. It is attached to the open file: it lasts as long as the volume keeps the file
//! open, also between two loads, and is closed with it. Called by the glue.

use fuser::BackingId;

use crate::volume::Attached;

/// The id of an open file for passthrough; `None` when its bytes travel through the daemon. The first to ask decides by
/// `register`.
pub fn backing_id(attached: &Attached, register: impl FnOnce() -> Option<BackingId>) -> Option<&BackingId> {
    decided(attached.get_or_init(|| Box::new(register())).as_ref())
}

/// Whether an open file is passed through; `None` while that is not decided.
pub fn is_passed_through(attached: &Attached) -> Option<bool> {
    attached.get().map(|attached| decided(attached.as_ref()).is_some())
}

fn decided(attached: &(dyn std::any::Any + Send + Sync)) -> Option<&BackingId> {
    attached.downcast_ref::<Option<BackingId>>().and_then(Option::as_ref)
}
