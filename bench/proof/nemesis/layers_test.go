package main

import (
	"maps"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

// notedNetwork notes the shapes that links have.
type notedNetwork struct {
	links.Network
	shapes map[links.Link]links.Shape
}

func (n *notedNetwork) Set(changed map[links.Link]links.Shape) error {
	for link, shape := range changed {
		if shape == (links.Shape{}) {
			delete(n.shapes, link)
		} else {
			n.shapes[link] = shape
		}
	}
	return nil
}

func TestLayersAddUpAndComeOff(t *testing.T) {
	type table = map[links.Link]links.Shape
	network := &notedNetwork{shapes: table{}}
	l := newLayers(network)
	a, b, c := links.Link{From: 0, To: 1}, links.Link{From: 1, To: 0}, links.Link{From: 0, To: 2}
	cut, refused, slow := links.Shape{Cut: true}, links.Shape{Cut: true, Refused: true},
		links.Shape{Delay: time.Second}
	check := func(what string, want table) {
		t.Helper()
		if !maps.Equal(network.shapes, want) {
			t.Errorf("%s: %v, want %v", what, network.shapes, want)
		}
		if now := l.now(); !maps.Equal(now, want) {
			t.Errorf("%s: the layers say %v, want %v", what, now, want)
		}
	}
	add := func(s table) int {
		t.Helper()
		layer, err := l.add(s)
		if err != nil {
			t.Fatal(err)
		}
		return layer
	}
	set := func(layer int, s table) {
		t.Helper()
		if err := l.set(layer, s); err != nil {
			t.Fatal(err)
		}
	}
	first := add(table{a: refused, b: slow})
	check("one layer", table{a: refused, b: slow})
	second := add(table{a: cut, c: slow})
	check("two layers", table{a: cut, b: slow, c: slow})
	third := add(table{b: refused})
	check("a slow link cut", table{a: cut, b: {Cut: true, Refused: true, Delay: time.Second},
		c: slow})
	set(first, nil)
	check("the first is off", table{a: cut, b: refused, c: slow})
	set(second, table{c: cut})
	check("the second changed", table{b: refused, c: cut})
	set(second, nil)
	set(third, nil)
	check("all are off", table{})
	if len(l.of) != 0 {
		t.Errorf("layers remain: %v", l.of)
	}
}
