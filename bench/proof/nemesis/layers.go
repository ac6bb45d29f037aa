package main

import (
	"maps"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

// layers has the shapes that faults give to links. Each fault has a layer of its own. So faults may
// overlap on a link, and the end of a fault removes only the shapes of that fault.
type layers struct {
	network links.Network
	next    int
	of      map[int]map[links.Link]links.Shape
}

func newLayers(network links.Network) *layers {
	return &layers{network: network, of: make(map[int]map[links.Link]links.Shape)}
}

// add adds a layer with shapes and returns the layer's number.
func (l *layers) add(shapes map[links.Link]links.Shape) (layer int, err error) {
	l.next++
	return l.next, l.set(l.next, shapes)
}

// set changes a layer. A layer without shapes is removed.
func (l *layers) set(layer int, shapes map[links.Link]links.Shape) error {
	concerned := make(map[links.Link]links.Shape)
	for link := range l.of[layer] {
		concerned[link] = links.Shape{}
	}
	for link := range shapes {
		concerned[link] = links.Shape{}
	}
	if len(shapes) == 0 {
		delete(l.of, layer)
	} else {
		l.of[layer] = maps.Clone(shapes)
	}
	for link := range concerned {
		concerned[link] = l.sum(link)
	}
	return l.network.Set(concerned)
}

// now returns the shapes of all links that are not healthy.
func (l *layers) now() map[links.Link]links.Shape {
	all := make(map[links.Link]links.Shape)
	for _, shapes := range l.of {
		for link := range shapes {
			all[link] = l.sum(link)
		}
	}
	return all
}

// sum returns the worst shape that the layers give to a link.
func (l *layers) sum(link links.Link) links.Shape {
	var sum links.Shape
	for _, shapes := range l.of {
		s := shapes[link]
		// A silent cut wins over a refused cut: no answer comes back.
		sum.Refused = s.Cut && s.Refused && (sum.Refused || !sum.Cut) || sum.Refused && !s.Cut
		sum.Cut = sum.Cut || s.Cut
		sum.Delay, sum.Jitter = max(sum.Delay, s.Delay), max(sum.Jitter, s.Jitter)
	}
	return sum
}
