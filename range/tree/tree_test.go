package tree

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type value struct{ n int }

// version is a tree, and the map that it has to be like.
type version struct {
	tree  Tree[int, *value]
	naive map[int]*value
}

// The tree does what a map would, in order; versions stay as they are; the difference leads from
// each to each.
func TestTreeAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const room = 12_000
		tree, naive := New[int, *value](cmp.Compare[int]), map[int]*value{}
		var versions []version
		for i := range rapid.IntRange(1, 12).Draw(t, "edits") {
			edit := tree.Edit()
			few := rapid.Bool().Draw(t, "few")
			n := rapid.IntRange(0, 6000).Draw(t, "changes")
			if few {
				n %= 4
			}
			start, stride := rapid.IntRange(0, room).Draw(t, "start"), rapid.SampledFrom([]int{1, -1,
				37}).Draw(t, "stride")
			deletes := rapid.IntRange(0, 3).Draw(t, "deletes")
			for j := range n {
				k := ((start+j*stride)%room + room) % room
				if j%4 < deletes {
					_, had := naive[k]
					if edit.Delete(k) != had {
						t.Fatalf("Delete(%d) is %t", k, !had)
					}
					delete(naive, k)
					continue
				}
				naive[k] = &value{i}
				edit.Set(k, naive[k])
			}
			tree = edit.Tree()
			edit.Set(-1, &value{}) // shows in no version
			versions = append(versions, version{tree, maps.Clone(naive)})
		}
		for _, v := range versions {
			v.check(t)
		}
		a := rapid.SampledFrom(versions).Draw(t, "from")
		b := rapid.SampledFrom(versions).Draw(t, "to")
		checkDiff(t, a, b)
	})
}

func (v version) check(t *rapid.T) {
	v.tree.checkInvariants()
	order := slices.Sorted(maps.Keys(v.naive))
	if v.tree.Len() != len(order) {
		t.Fatalf("%d entries, want %d", v.tree.Len(), len(order))
	}
	var got []int
	for k, x := range v.tree.All() {
		if v.naive[k] != x {
			t.Fatalf("key %d has another value", k)
		}
		got = append(got, k)
	}
	if !slices.Equal(got, order) {
		t.Fatalf("keys %v, want %v", got, order)
	}
	last, found := v.tree.Last()
	if found != (len(order) > 0) || found && last != v.naive[order[len(order)-1]] {
		t.Fatalf("Last: %v %t", last, found)
	}
	for range 20 {
		k := rapid.IntRange(-2, 12_001).Draw(t, "key")
		x, found := v.tree.Get(k)
		if want, there := v.naive[k]; found != there || x != want {
			t.Fatalf("Get(%d): %v %t", k, x, found)
		}
		i, equal := slices.BinarySearch(order, k)
		at := func(i int) *value {
			if i < 0 {
				return nil
			}
			return v.naive[order[i]]
		}
		if x, _ := v.tree.Below(k); x != at(i-1) {
			t.Fatalf("Below(%d): %v", k, x)
		}
		floor := at(i - 1)
		if equal {
			floor = at(i)
		}
		if x, _ := v.tree.Floor(k); x != floor {
			t.Fatalf("Floor(%d): %v", k, x)
		}
		got, stop := []int(nil), rapid.IntRange(1, 2000).Draw(t, "stop")
		for k := range v.tree.From(k) {
			if got = append(got, k); len(got) == stop {
				break
			}
		}
		if want := order[i:min(len(order), i+stop)]; !slices.Equal(got, want) {
			t.Fatalf("From(%d): %v, want %v", k, got, want)
		}
	}
}

func checkDiff(t *rapid.T, a, b version) {
	led, previous := maps.Clone(a.naive), -1
	Diff(a.tree, b.tree, func(c Change[int, *value]) bool {
		if c.Key <= previous {
			t.Fatalf("key %d after key %d", c.Key, previous)
		}
		previous = c.Key
		if old, had := a.naive[c.Key]; had != c.Had || old != c.Old {
			t.Fatalf("key %d: old %v %t", c.Key, c.Old, c.Had)
		}
		if c.Old == c.New {
			t.Fatalf("key %d has not changed", c.Key)
		}
		if c.Has {
			led[c.Key] = c.New
		} else {
			delete(led, c.Key)
		}
		return true
	})
	if !maps.Equal(led, b.naive) {
		t.Fatal("the difference does not lead from the one to the other")
	}
	visits := 0
	Diff(a.tree, b.tree, func(Change[int, *value]) bool { visits++; return false })
	if visits > 1 {
		t.Fatal("went on after false")
	}
}

// counted is an order that counts.
func counted(calls *int) func(a, b int) int {
	return func(a, b int) int { *calls++; return cmp.Compare(a, b) }
}

// What an update, and the difference it makes, cost does not grow with the tree.
func TestCostIsThatOfTheChange(t *testing.T) {
	const all = 200_000
	calls := 0
	edit := New[int, *value](counted(&calls)).Edit()
	for i := range all {
		edit.Set(i, &value{i})
	}
	before := edit.Tree()
	for _, k := range []int{0, 77_777, all - 1} {
		calls = 0
		edit := before.Edit()
		edit.Set(k, &value{-1})
		after := edit.Tree()
		if shared, own := shared(before.root, after.root); own > 4 || shared < maxEntries {
			t.Errorf("key %d: %d nodes were made", k, own)
		}
		changes := 0
		Diff(before, after, func(Change[int, *value]) bool { changes++; return true })
		if changes != 1 || calls > 4*maxEntries {
			t.Errorf("key %d: %d changes were found with %d comparisons", k, changes, calls)
		}
	}
	// One that takes a node away.
	edit, calls = before.Edit(), 0
	for k := range 100 {
		edit.Delete(50_000 + k)
	}
	after, changes := edit.Tree(), 0
	calls = 0
	Diff(before, after, func(c Change[int, *value]) bool { changes++; return true })
	if changes != 100 || calls > 1000 {
		t.Errorf("%d changes were found with %d comparisons", changes, calls)
	}
}

// shared counts the nodes of b that are a's, without what is below them, and those that are not.
func shared[K any, V comparable](a, b *node[K, V]) (same, own int) {
	of := map[*node[K, V]]bool{}
	var collect func(n *node[K, V])
	collect = func(n *node[K, V]) {
		of[n] = true
		for _, c := range n.children {
			collect(c)
		}
	}
	collect(a)
	var visit func(n *node[K, V])
	visit = func(n *node[K, V]) {
		if of[n] {
			same++
			return
		}
		own++
		for _, c := range n.children {
			visit(c)
		}
	}
	visit(b)
	return same, own
}
