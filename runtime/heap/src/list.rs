//! An intrusive doubly linked list. Safe: the references are as valid as their type promises.

use core::cell::Cell;

/// The links that a member carries.
pub(crate) struct Links<R> {
    prev: Cell<Option<R>>,
    next: Cell<Option<R>>,
}

impl<R> Links<R> {
    pub(crate) const fn new() -> Self {
        Self {
            prev: Cell::new(None),
            next: Cell::new(None),
        }
    }
}

/// A reference to something with links.
pub(crate) trait Member: Copy {
    fn links(&self) -> &Links<Self>;
}

/// A list; a member is in one list at most.
pub(crate) struct List<R> {
    first: Cell<Option<R>>,
}

impl<R: Member> List<R> {
    pub(crate) const fn new() -> Self {
        Self {
            first: Cell::new(None),
        }
    }

    pub(crate) fn first(&self) -> Option<R> {
        self.first.get()
    }

    pub(crate) fn after(member: R) -> Option<R> {
        member.links().next.get()
    }

    pub(crate) fn push(&self, member: R) {
        let next = self.first.replace(Some(member));
        if let Some(next) = next {
            next.links().prev.set(Some(member));
        }
        member.links().prev.set(None);
        member.links().next.set(next);
    }

    pub(crate) fn remove(&self, member: R) {
        let prev = member.links().prev.take();
        let next = member.links().next.take();
        match prev {
            Some(prev) => prev.links().next.set(next),
            None => self.first.set(next),
        }
        if let Some(next) = next {
            next.links().prev.set(prev);
        }
    }

    pub(crate) fn pop(&self) -> Option<R> {
        let first = self.first.get()?;
        self.remove(first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Node(Links<&'static Node>);

    // SAFETY: each test thread uses its own nodes.
    unsafe impl Sync for Node {}

    impl Member for &'static Node {
        fn links(&self) -> &Links<Self> {
            &self.0
        }
    }

    #[test]
    fn members_leave_from_everywhere() {
        static NODES: [Node; 4] = [const { Node(Links::new()) }; 4];
        let list = List::<&'static Node>::new();
        let order = || {
            let mut at = list.first();
            let mut seen = [9; 4];
            let mut len = 0;
            while let Some(node) = at {
                seen[len] = NODES
                    .iter()
                    .position(|other| core::ptr::eq(other, node))
                    .unwrap();
                len += 1;
                at = List::after(node);
            }
            (seen, len)
        };
        NODES.iter().for_each(|node| list.push(node));
        assert_eq!(order(), ([3, 2, 1, 0], 4));
        list.remove(&NODES[2]);
        assert_eq!(order(), ([3, 1, 0, 9], 3));
        list.remove(&NODES[0]);
        list.remove(&NODES[3]);
        assert_eq!(order(), ([1, 9, 9, 9], 1));
        list.push(&NODES[0]);
        assert!(
            list.pop()
                .is_some_and(|node| core::ptr::eq(node, &NODES[0]))
        );
        assert!(
            list.pop()
                .is_some_and(|node| core::ptr::eq(node, &NODES[1]))
        );
        assert!(list.pop().is_none());
    }
}
