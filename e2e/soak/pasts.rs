//! Branches that become what others are or what they were, copies of what they were, and the trash.

use serde_json::{Value, json};

use super::model::{Branch, Contents, Past};
use super::{BRANCHES_MAX, Soak};

impl Soak {
    /// Gives a branch what its parent has; one without a parent is given what it was.
    pub(super) fn reset(&mut self, index: usize) {
        let Some(parent) = self.parent_of(index) else { return self.go_back(index) };
        self.settle_for_copy(parent);
        let contents = self.branches[parent].contents.clone();
        self.take(index, &json!({}), contents);
    }

    /// Gives a branch what it was, as a version or at a place of its log that is remembered.
    pub(super) fn go_back(&mut self, index: usize) {
        self.remember(index);
        let Some((from, contents)) = self.any_past(index) else { return };
        self.take(index, &json!({ "from": from }), contents);
    }

    /// Makes a child of what a branch was.
    pub(super) fn make_child_of_past(&mut self, index: usize) {
        self.remember(index);
        let Some((from, contents)) = self.any_past(index) else { return self.make_child(index) };
        self.wait_until_settled(index);
        let mut request = self.child_request(index);
        let more = from.as_object().expect("an object").clone();
        request.as_object_mut().expect("an object").extend(more);
        println!("soak:     {from}");
        self.make(&request, contents);
        self.read(self.branches.len() - 1);
    }

    /// Puts a branch above its parent.
    pub(super) fn promote(&mut self, index: usize) {
        let Some(parent) = self.parent_of(index) else { return };
        let answer = self.call("POST", &format!("{}/promote", self.path(index)), Some(&json!({})), 200);
        let above = self.branches[parent].parent.clone();
        assert_eq!(answer["parentID"].as_str(), above.as_deref());
        self.branches[parent].parent = Some(self.branches[index].id.clone());
        self.branches[index].parent = above;
        for one in [index, parent] {
            self.branches[one].former_parent = None;
        }
    }

    /// Brings back what is in the trash, under another name.
    pub(super) fn bring_back(&mut self) {
        if self.trash.is_empty() || self.branches.len() >= BRANCHES_MAX {
            return;
        }
        let chosen = self.below(self.trash.len() as u64) as usize;
        let mut back = self.trash.remove(chosen);
        println!("soak:     {} {}", back.name, back.id);
        back.name = self.new_name();
        let path = format!("{}/trash/{}/undelete", self.project, back.id);
        self.call("POST", &path, Some(&json!({ "name": back.name })), 200);
        back.is_asleep = false;
        let id = back.id.clone();
        back.parent = back.former_parent.clone().filter(|id| self.index_of(id).is_some());
        self.branches.push(back);
        for child in &mut self.branches {
            if child.parent.is_none() && child.former_parent.as_ref() == Some(&id) {
                child.parent = Some(id.clone());
            }
        }
        let index = self.branches.len() - 1;
        self.wait_until_settled(index);
        self.read(index);
    }

    /// What was deleted and may come back; its children have no parent any more.
    pub(super) fn put_away(&mut self, index: usize) {
        let mut gone = self.branches.remove(index);
        for child in self.branches.iter_mut().filter(|child| child.parent.as_ref() == Some(&gone.id)) {
            child.former_parent = child.parent.take();
        }
        gone.former_parent = gone.parent.take().or(gone.former_parent);
        self.trash.push(gone);
    }

    /// Resets a branch by this request, after which it has these contents.
    fn take(&mut self, index: usize, body: &Value, contents: Contents) {
        self.wait_until_settled(index);
        println!("soak:     {body}");
        self.call("POST", &format!("{}/reset", self.path(index)), Some(body), 200);
        self.wait_until_settled(index);
        self.note_replaced(index, contents);
    }

    /// A branch has these contents since it was reset once, or several times to the same.
    pub(super) fn note_replaced(&mut self, index: usize, contents: Contents) {
        let there = self.versions(index);
        let branch = &mut self.branches[index];
        // The latest comes first.
        let new: Vec<_> = there.iter().filter(|id| branch.pasts.iter().all(|past| past.id != **id)).collect();
        assert!(!new.is_empty(), "{} was not reset", branch.name);
        let before = std::mem::replace(&mut branch.contents, contents.clone());
        let mut was = (before, std::mem::take(&mut branch.places));
        for id in new.into_iter().rev() {
            let (contents, places) = std::mem::replace(&mut was, (contents.clone(), vec![]));
            branch.pasts.push(Past { id: id.clone(), contents, places });
        }
        branch.pasts.retain(|past| there.contains(&past.id));
    }

    /// Ids of a branch's versions, the latest first.
    fn versions(&self, index: usize) -> Vec<String> {
        let history = self.call("GET", &format!("{}/history", self.path(index)), None, 200);
        let versions = history["versions"].as_array().expect("versions").iter();
        versions.map(|version| version["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// Remembers how far the log of a branch is that holds what is known of it, where history is kept.
    fn remember(&mut self, index: usize) {
        if !self.keeps_history {
            return;
        }
        self.settle_for_copy(index);
        // All that was acknowledged lies before it, and no end of a process takes anything of that.
        let history = self.call("GET", &format!("{}/history", self.path(index)), None, 200);
        let place = history["window"]["toLsn"].as_str().expect("a place").to_owned();
        let Branch { places, contents, .. } = &mut self.branches[index];
        places.push((place, contents.clone()));
    }

    /// Something that a branch was, as a request names it, and what was in it then.
    fn any_past(&mut self, index: usize) -> Option<(Value, Contents)> {
        let Branch { pasts, places, .. } = &self.branches[index];
        let mut all: Vec<(Value, Contents)> =
            places.iter().map(|(place, then)| (json!({ "targetLsn": place }), then.clone())).collect();
        for Past { id, contents, places } in pasts {
            all.push((json!({ "versionID": id }), contents.clone()));
            let of = |place: &String| json!({ "versionID": id, "targetLsn": place });
            all.extend(places.iter().map(|(place, then)| (of(place), then.clone())));
        }
        let chosen = self.below(all.len().max(1) as u64) as usize;
        (chosen < all.len()).then(|| all.swap_remove(chosen))
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        self.branches.iter().position(|branch| branch.id == id)
    }

    /// The parent of a branch.
    pub(super) fn parent_of(&self, index: usize) -> Option<usize> {
        self.branches[index].parent.as_ref().and_then(|parent| self.index_of(parent))
    }
}
