package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var began = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func at(seconds int64) Timestamp { return At(hlc.Timestamp{Wall: seconds * 1e9}) }

// backup makes a manifest of keyspace 7, "fruit", with units that end at the splits.
func backup(n uint32, parent *Manifest, moment int64, splits ...string) *Manifest {
	m := &Manifest{Plan: Plan{Head: Head{Format: Format, ID: NewID(began, n), Kind: Full,
		At: at(moment), Cluster: "c"}}}
	if parent != nil {
		m.Head.Kind, m.Head.Parent, m.Head.After = Incremental, parent.Head.ID, parent.Head.At
	}
	m.Keyspaces = []Keyspace{{ID: 7, Name: "fruit", Definition: json.RawMessage(`{}`),
		After: m.Head.After}}
	start := ""
	for i, end := range append(splits, "") {
		m.Units = append(m.Units, Unit{Keyspace: 7, Start: []byte(start), End: []byte(end)})
		m.Done = append(m.Done, Done{Unit: i, Pieces: []Piece{piece(m, i, start+"0", start+"1")}})
		start = end
	}
	return m
}

func piece(m *Manifest, unit int, first, last string) Piece {
	return Piece{Name: PieceName(m.Head.ID, unit, 1, 0), Size: 10, Sum: strings.Repeat("ab", 32),
		First: []byte(first), Last: []byte(last), Records: 2, Bytes: 8}
}

func TestManifestIsReadBack(t *testing.T) {
	m := backup(1, nil, 100, "b", "d")
	data, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Encode(read)
	if err != nil || string(again) != string(data) {
		t.Errorf("%v: %s instead of %s", err, again, data)
	}
	if sum := read.Sum(); sum != (Totals{Keyspaces: 1, Pieces: 3, Records: 6, Bytes: 24, Stored: 30}) {
		t.Errorf("the sums are %+v", sum)
	}
}

// Whatever is wrong with a manifest is noticed.
func TestManifestIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(*Manifest){
		"a unit less":       func(m *Manifest) { m.Units, m.Done = m.Units[:2], m.Done[:2] },
		"a hole":            func(m *Manifest) { m.Units[1].Start = []byte("c") },
		"an overlap":        func(m *Manifest) { m.Units[1].Start = []byte("a") },
		"an early end":      func(m *Manifest) { m.Units[1].End = nil },
		"an empty unit":     func(m *Manifest) { m.Units[1].End = []byte("b") },
		"another keyspace":  func(m *Manifest) { m.Units[2].Keyspace = 8 },
		"a keyspace twice":  func(m *Manifest) { m.Keyspaces = append(m.Keyspaces, m.Keyspaces[0]) },
		"a unit undone":     func(m *Manifest) { m.Done = m.Done[:2] },
		"a unit done twice": func(m *Manifest) { m.Done[1] = m.Done[0] },
		"a piece outside":   func(m *Manifest) { m.Done[0].Pieces[0].Last = []byte("b") },
		"a piece of another backup": func(m *Manifest) {
			m.Done[0].Pieces[0].Name = PieceName(NewID(began, 9), 0, 1, 0)
		},
		"a piece of another unit": func(m *Manifest) { m.Done[1].Pieces = m.Done[0].Pieces },
		"a piece without a sum":   func(m *Manifest) { m.Done[0].Pieces[0].Sum = "" },
		"pieces out of order": func(m *Manifest) {
			m.Done[1].Pieces = []Piece{piece(m, 1, "b5", "b6"), piece(m, 1, "b2", "b3")}
		},
		"a later format":      func(m *Manifest) { m.Head.Format = Format + 1 },
		"no moment":           func(m *Manifest) { m.Head.At = Timestamp{} },
		"a full one's parent": func(m *Manifest) { m.Head.Parent = NewID(began, 9) },
		"another beginning":   func(m *Manifest) { m.Keyspaces[0].After = at(3) },
		"no coordination":     func(m *Manifest) { m.Coordination = &Blob{Names: []string{"x"}} },
	} {
		m := backup(1, nil, 100, "b", "d")
		spoil(m)
		data, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeManifest(data); err == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}

func TestChain(t *testing.T) {
	full := backup(1, nil, 100, "m")
	first := backup(2, full, 200, "c", "m")
	second := backup(3, first, 300)
	other := backup(4, nil, 250)
	heads := Heads{}
	for _, m := range []*Manifest{full, first, second, other} {
		heads[m.Head.ID] = &m.Head
	}
	chain, err := heads.Chain(second.Head.ID)
	if err != nil || len(chain) != 3 || chain[0] != &full.Head || chain[2] != &second.Head {
		t.Fatalf("%v: %v", err, chain)
	}
	layers := Layers{full, first, second}
	if err := layers.Check(chain); err != nil {
		t.Fatal(err)
	}
	lists, err := layers.Pieces(&second.Keyspaces[0], keys.Span{Start: []byte("c"), End: []byte("d")})
	if err != nil || len(lists) != 3 || len(lists[0]) != 0 || len(lists[1]) != 1 ||
		string(lists[1][0].First) != "c0" || len(lists[2]) != 0 {
		t.Errorf("%v: %v", err, lists)
	}
	if needed := heads.NeededBy(heads); len(needed) != 2 || !needed[full.Head.ID] || !needed[first.Head.ID] {
		t.Errorf("needed: %v", needed)
	}

	for name, spoil := range map[string]func(Heads, Layers){
		"a missing parent":  func(h Heads, _ Layers) { delete(h, full.Head.ID) },
		"another cluster":   func(h Heads, l Layers) { h[full.Head.ID].Cluster = "d" },
		"a hole in time":    func(h Heads, l Layers) { h[full.Head.ID].At = at(99) },
		"a swapped layer":   func(_ Heads, l Layers) { l[0], l[1] = l[1], l[0] },
		"a keyspace's hole": func(_ Heads, l Layers) { l[1].Keyspaces = nil },
		"a keyspace's hole in time": func(_ Heads, l Layers) {
			l[2].Keyspaces[0].After = at(150)
		},
	} {
		heads, layers := Heads{}, Layers{}
		for _, m := range []*Manifest{full, first, second} {
			one := *m
			one.Keyspaces = slices.Clone(m.Keyspaces)
			layers = append(layers, &one)
			head := one.Head
			heads[head.ID] = &head
		}
		spoil(heads, layers)
		chain, err := heads.Chain(second.Head.ID)
		if err == nil {
			err = layers.Check(chain)
		}
		if !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := heads.Chain("nonsense"); err == nil {
		t.Error("an unknown backup has a chain")
	}
}

// A keyspace that was created after the full backup needs no earlier layer.
func TestChainOfANewKeyspace(t *testing.T) {
	full := backup(1, nil, 100)
	full.Keyspaces, full.Units, full.Done = nil, nil, nil
	next := backup(2, full, 200)
	next.Keyspaces[0].After = Timestamp{}
	layers := Layers{full, next}
	if err := layers.Check([]*Head{&full.Head, &next.Head}); err != nil {
		t.Fatal(err)
	}
	lists, err := layers.Pieces(&next.Keyspaces[0], keys.Span{})
	if err != nil || len(lists) != 1 {
		t.Errorf("%v: %v", err, lists)
	}
}

// Units cover each keyspace exactly once, whatever its partitions.
func TestCutCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		starts := rapid.SliceOfNDistinct(rapid.StringN(1, 3, 6), 0, 30,
			rapid.ID[string]).Draw(t, "starts")
		slices.Sort(starts)
		parts := []Partition{{Nodes: []keys.NodeID{1}}}
		for i, s := range starts {
			parts = append(parts, Partition{Start: []byte(s), Nodes: []keys.NodeID{2, 1},
				Bytes: rapid.Uint64Range(0, 100).Draw(t, fmt.Sprint(i))})
		}
		limits := UnitLimits{Bytes: rapid.Uint64Range(0, 300).Draw(t, "bytes"),
			Partitions: rapid.IntRange(1, 8).Draw(t, "partitions")}
		units := Cut(7, parts, limits)
		p := Plan{Head: backup(1, nil, 100).Head, Keyspaces: []Keyspace{{ID: 7, Name: "fruit"}},
			Units: units}
		if err := p.Check(); err != nil {
			t.Fatalf("%v, %d units", err, len(units))
		}
		for _, u := range units {
			if near := Near(parts, u.Span()); len(near) == 0 {
				t.Fatalf("no node is near %v", u.Span())
			}
		}
	})
}

func TestNames(t *testing.T) {
	id := NewID(began, 0x1a2b3c4d)
	if id != "20260131T120000Z-1a2b3c4d" || CheckID(id) != "" {
		t.Errorf("%s: %s", id, CheckID(id))
	}
	for _, bad := range []string{"", "x", "20260131T120000Z", "20260131T120000Z-1a2b3c4", "../../etc",
		"20261331T120000Z-1a2b3c4d", "20260131T120000Z-1A2B3C4D"} {
		if CheckID(bad) == "" {
			t.Errorf("%q is taken for an id", bad)
		}
	}
	if n, ok := UnitOf(id, UnitName(id, 42)); n != 42 || !ok {
		t.Errorf("unit %d, %v", n, ok)
	}
	for _, bad := range []string{UnitName(id, 42) + "x", PlanName(id), UnitsPrefix(id) + "42"} {
		if _, ok := UnitOf(id, bad); ok {
			t.Errorf("%s is taken for a unit", bad)
		}
	}
	if of, rest, ok := IDOf(PlanName(id)); of != id || rest != "plan" || !ok || IsHead(PlanName(id)) ||
		!IsHead(HeadName(id)) {
		t.Error(of, rest, ok)
	}
}

func FuzzDecode(f *testing.F) {
	data, _ := Encode(backup(1, nil, 100, "b"))
	f.Add(data)
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = DecodeHead(data)
		_, _ = DecodePlan(data)
		_, _ = DecodeManifest(data)
		_, _ = DecodeDone(data)
	})
}
