use super::super::entry::{Class, Entry};
use super::*;

#[test]
fn unmovable_frames_mark_a_block_until_it_is_whole() {
    let whole = Entry::new(FRAMES_PER_BLOCK);
    assert_eq!(whole.class(), Some(Class::WHOLE));
    let movable = whole.take(1, FrameKind::Movable);
    assert_eq!(movable.class(), Some(Class::broken(FrameKind::Movable, 8)));
    let marked = movable.take(1, FrameKind::Unmovable);
    assert_eq!(marked.class(), Some(Class::broken(FrameKind::Unmovable, 8)));
    let still = marked.take(5, FrameKind::Movable);
    assert_eq!(
        (still.class(), still.free()),
        (Some(Class::broken(FrameKind::Unmovable, 8)), 505)
    );
    // A whole block forgets what it was.
    let all_unmovable = whole.take(FRAMES_PER_BLOCK, FrameKind::Unmovable);
    assert_eq!(all_unmovable.kind(), FrameKind::Unmovable);
    assert_eq!(all_unmovable.class(), None);
    let again = whole
        .take(3, FrameKind::Unmovable)
        .take(0, FrameKind::Movable);
    assert_eq!(again.kind(), FrameKind::Unmovable);
}

#[test]
fn a_reserved_block_has_no_class_and_an_empty_one_no_owner() {
    for owner in [0, 77, 255].map(cpu) {
        let reserved = Entry::new(10).with_owner(Some(owner));
        assert_eq!((reserved.owner(), reserved.class()), (Some(owner), None));
        let fewer = reserved.take(9, FrameKind::Movable);
        assert_eq!((fewer.owner(), fewer.free()), (Some(owner), 1));
        assert_eq!(fewer.take(1, FrameKind::Movable).owner(), None);
        assert_eq!(
            fewer.with_owner(None).class(),
            Some(Class::broken(FrameKind::Movable, 8))
        );
    }
    assert_eq!(Entry::new(0).with_owner(Some(cpu(3))).owner(), None);
}
