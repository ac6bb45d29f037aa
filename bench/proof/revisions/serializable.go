package revisions

import (
	"cmp"
	"fmt"
	"slices"
)

// event is a change of a key at a known revision.
type event struct {
	revision int64
	deleted  bool
	value    string
	call     int64 // of the operation
}

// events lists the changes of each key whose revision is known, in order. vague says whether an
// operation whose effect no client saw may have deleted the key.
func events(operations []Operation) (of map[string][]event, vague func(key string) bool) {
	of = make(map[string][]event)
	keys := make(map[string]bool)
	var unseen []Action
	for i := range operations {
		for _, branch := range [][]Action{operations[i].Then, operations[i].Else} {
			for _, a := range branch {
				if a.Kind == Put {
					keys[a.Key] = true
				}
			}
		}
	}
	for i := range operations {
		o := &operations[i]
		if o.Outcome == Refused || o.Serializable {
			continue
		}
		if o.Outcome == Unknown && o.at == 0 {
			unseen = append(append(unseen, o.Then...), o.Else...)
			continue
		}
		revision, branch := o.at, o.Then
		if o.Outcome == Done {
			revision, branch = o.Revision, o.branch()
		} else {
			// It is not known whether the comparisons were true, so either branch may have been
			// taken. No client saw the deletions of the operation.
			unseen = append(append(unseen, o.Then...), o.Else...)
			branch = append(slices.Clone(branch), o.Else...)
		}
		for n, a := range branch {
			switch {
			case a.Kind == Put && (o.Outcome == Done || seenAt(operations, a.Value) == o.at):
				of[a.Key] = append(of[a.Key], event{revision, false, a.Value, o.Call})
			case a.Kind == Delete && o.Outcome == Done:
				for _, p := range o.Found[n] {
					of[p.Key] = append(of[p.Key], event{revision, true, "", o.Call})
				}
			}
		}
	}
	for key := range keys {
		slices.SortStableFunc(of[key], func(a, b event) int {
			return cmp.Compare(a.revision, b.revision)
		})
	}
	return of, func(key string) bool {
		return slices.ContainsFunc(unseen, func(a Action) bool {
			return a.Kind == Delete && a.covers(key)
		})
	}
}

// seenAt returns the revision with which a value was read; 0 if it was not read.
func seenAt(operations []Operation, value string) int64 {
	for i := range operations {
		for _, pairs := range operations[i].Found {
			for _, p := range pairs {
				if p.Value == value {
					return p.Mod
				}
			}
		}
	}
	return 0
}

// checkSerializable checks the reads without a quorum. For every key such a read must show the last
// change up to the revision in its answer. A change up to that revision must not have begun after
// the read had ended.
func checkSerializable(operations []Operation) (complaints []string) {
	of, vague := events(operations)
	for i := range operations {
		o := &operations[i]
		if !o.Serializable || o.Outcome != Done {
			continue
		}
		for n, a := range o.Then {
			for key, changes := range of {
				if !a.covers(key) {
					continue
				}
				if why := shows(o, o.Found[n], key, changes, vague(key)); why != "" {
					complaints = append(complaints, fmt.Sprintf("%s: %v", why, o))
				}
			}
		}
	}
	return complaints
}

// shows says what is wrong with the pairs that a read found of a key with these changes.
func shows(o *Operation, found []Pair, key string, changes []event, vague bool) string {
	var last *event
	for i := range changes {
		if changes[i].revision > o.Revision {
			break
		}
		if changes[i].call > o.Return {
			return fmt.Sprintf("a read from the future: its revision is %d, and the change of %s at %d "+
				"was begun after it", o.Revision, key, changes[i].revision)
		}
		last = &changes[i]
	}
	i := slices.IndexFunc(found, func(p Pair) bool { return p.Key == key })
	switch {
	case i < 0 && (last == nil || last.deleted || vague):
		return ""
	case i < 0:
		return fmt.Sprintf("a torn or wrong read: %s was written at %d and is absent", key,
			last.revision)
	case found[i].Mod > o.Revision:
		return fmt.Sprintf("a read from the future: %v", found[i])
	case last == nil || last.deleted || last.revision != found[i].Mod:
		return fmt.Sprintf("a torn or wrong read: %v is not the last change up to revision %d",
			found[i], o.Revision)
	}
	return ""
}
