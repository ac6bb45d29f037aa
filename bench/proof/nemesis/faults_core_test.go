package main

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// threeMembers is a core that is whole: member 4 came in place of member 1 at a.
func threeMembers() admin.Core {
	return admin.Core{Members: []admin.CoreMemberInfo{
		{ID: 2, Address: "b", Role: "voter", Leader: true, Answers: true},
		{ID: 3, Address: "c", Role: "voter", Answers: true},
		{ID: 4, Address: "a", Role: "voter", Answers: true},
	}}
}

func TestWholeCore(t *testing.T) {
	addresses := []string{"a", "b", "c"}
	for _, c := range []struct {
		name   string
		change func(*admin.Core)
		former uint64
		says   string
	}{
		{"whole", func(*admin.Core) {}, 1, ""},
		{"whole, and no member went", func(*admin.Core) {}, 0, ""},
		{"the former is there", func(*admin.Core) {}, 4, "member 4 is there still"},
		{"a change is under way", func(c *admin.Core) {
			c.Change = &admin.CoreChange{Add: "a", Step: "x"}
		}, 1, "a change is under way"},
		{"one is missing", func(c *admin.Core) { c.Members = c.Members[:2] }, 1, "2 members, not 3"},
		{"one too many", func(c *admin.Core) {
			c.Members = append(c.Members, admin.CoreMemberInfo{ID: 5, Address: "d", Role: "voter",
				Answers: true})
		}, 1, "4 members, not 3"},
		{"two at one address", func(c *admin.Core) { c.Members[1].Address = "a" }, 1,
			"2 members are at a"},
		{"a learner", func(c *admin.Core) { c.Members[2].Role = "learner" }, 1, "is learner"},
		{"one is silent", func(c *admin.Core) { c.Members[2].Answers = false }, 1, "does not answer"},
		{"one has no state yet", func(c *admin.Core) { c.Members[2].Snapshot = true }, 1, "snapshot"},
		{"no member leads", func(c *admin.Core) { c.Members[0].Leader = false }, 1,
			"0 of its members lead"},
	} {
		core := threeMembers()
		c.change(&core)
		got := wholeCore(core, addresses, c.former)
		if (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.name, got, c.says)
		}
	}
}

// Each way goes through its acts in order, and an act that was done is not done again.
func TestReplacementGoesOn(t *testing.T) {
	before := admin.Core{Members: []admin.CoreMemberInfo{{ID: 1, Address: "a"}, {ID: 2, Address: "b"},
		{ID: 3, Address: "c"}}}
	without := admin.Core{Members: before.Members[1:]}
	changing := admin.Core{Members: before.Members, Change: &admin.CoreChange{}}
	for _, c := range []struct {
		name string
		how  way
		anew bool
		core admin.Core
		want act
	}{
		{"lost", lost, false, before, begin},
		{"lost, and there anew", lost, true, before, replace},
		{"lost, and being replaced", lost, true, changing, look},
		{"lost, and replaced", lost, true, threeMembers(), look},
		{"stopped", stopped, false, before, begin},
		{"to be removed", removed, false, before, remove},
		{"being removed", removed, false, changing, look},
		{"was removed", removed, false, without, begin},
		{"was removed, and there anew", removed, true, without, add},
		{"was removed, and added", removed, true, threeMembers(), look},
	} {
		r := &replacement{address: "a", how: c.how, former: 1, anew: c.anew}
		if got := r.next(c.core); got != c.want {
			t.Errorf("%s: act %d, want %d", c.name, got, c.want)
		}
	}
}
