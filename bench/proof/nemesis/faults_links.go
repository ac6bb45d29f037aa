package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

// shaped is a fault that gives shapes to links for its duration.
func (w *world) shaped(shapes map[links.Link]links.Shape, e effect, format string,
	arguments ...any) (*fault, error) {
	layer, err := w.layers.add(shapes)
	if err != nil {
		return nil, err
	}
	return &fault{what: fmt.Sprintf(format, arguments...), effect: e,
		end: func() error { return w.layers.set(layer, nil) }}, nil
}

// around returns shapes for the links from a server to all others, or to the server from all
// others, or for both directions.
func around(server int, from, to, clients bool, s links.Shape) map[links.Link]links.Shape {
	shapes := make(map[links.Link]links.Shape)
	self := links.Host(server)
	others := []links.Host{}
	for _, i := range allServers() {
		if i != server {
			others = append(others, links.Host(i))
		}
	}
	if clients {
		others = append(others, links.Clients)
	}
	for _, other := range others {
		if from {
			shapes[links.Link{From: self, To: other}] = s
		}
		if to {
			shapes[links.Link{From: other, To: self}] = s
		}
	}
	return shapes
}

// anyPair draws two different servers.
func anyPair(random *rand.Rand) (a, b int) {
	order := random.Perm(cores + nodes)
	return order[0], order[1]
}

func cutOneWay(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	a, b := anyPair(random)
	s := anyCut(random)
	link := links.Link{From: links.Host(a), To: links.Host(b)}
	return w.shaped(map[links.Link]links.Shape{link: s}, effect{}, "link from %s to %s is %v",
		w.servers[a].Name, w.servers[b].Name, s)
}

func cutBothWays(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	a, b := anyPair(random)
	s := anyCut(random)
	there := links.Link{From: links.Host(a), To: links.Host(b)}
	back := links.Link{From: there.To, To: there.From}
	return w.shaped(map[links.Link]links.Shape{there: s, back: s}, effect{},
		"links between %s and %s are %v", w.servers[a].Name, w.servers[b].Name, s)
}

func isolate(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, s := anyServer(random), anyCut(random)
	return w.shaped(around(server, true, true, true, s), effect{gone: servers(server)},
		"%s is isolated, links are %v", w.servers[server].Name, s)
}

func isolateOneWay(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, s := anyServer(random), anyCut(random)
	out, clients := random.IntN(2) == 0, random.IntN(2) == 0
	what := "hears no server"
	if out {
		what = "is not heard"
	}
	if clients {
		what += ", nor the clients"
	}
	return w.shaped(around(server, out, !out, clients, s), effect{gone: servers(server)},
		"%s %s, links are %v", w.servers[server].Name, what, s)
}

func isolateLeader(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	leaders, s := w.placed.leaders(), anyCut(random)
	server := leaders[random.IntN(len(leaders))]
	return w.shaped(around(server, true, true, false, s), effect{gone: servers(server)},
		"%s, which leads, reaches only clients, links are %v", w.servers[server].Name, s)
}

func cutClients(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, s := anyNode(random), anyCut(random)
	shapes := make(map[links.Link]links.Shape)
	switch random.IntN(3) {
	case 0:
		shapes[links.Link{From: links.Clients, To: links.Host(server)}] = s
	case 1:
		shapes[links.Link{From: links.Host(server), To: links.Clients}] = s
	default:
		shapes[links.Link{From: links.Clients, To: links.Host(server)}] = s
		shapes[links.Link{From: links.Host(server), To: links.Clients}] = s
	}
	return w.shaped(shapes, effect{apart: servers(server)},
		"%d links between clients and %s are %v", len(shapes), w.servers[server].Name, s)
}

func split(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	s := anyCut(random)
	side := make(map[int]int)
	var ones []int
	for _, i := range random.Perm(cores + nodes)[:1+random.IntN(cores+nodes-1)] {
		side[i] = 1
		ones = append(ones, i)
	}
	shapes := make(map[links.Link]links.Shape)
	for _, a := range allServers() {
		for _, b := range allServers() {
			if side[a] != side[b] {
				shapes[links.Link{From: links.Host(a), To: links.Host(b)}] = s
			}
		}
	}
	return w.shaped(shapes, effect{side: side},
		"%s are split from the others, links are %v; clients reach all", w.names(ones), s)
}

func slowLinks(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	s := links.Shape{Delay: between(random, ms, 200*ms), Jitter: between(random, 0, 50*ms)}
	shapes, what := make(map[links.Link]links.Shape), ""
	switch random.IntN(3) {
	case 0:
		a, b := anyPair(random)
		shapes[links.Link{From: links.Host(a), To: links.Host(b)}] = s
		what = fmt.Sprintf("link from %s to %s", w.servers[a].Name, w.servers[b].Name)
	case 1:
		server := anyServer(random)
		shapes, what = around(server, true, true, true, s), "all links of "+w.servers[server].Name
	default:
		for _, i := range allServers() {
			for link := range around(i, true, false, false, s) {
				shapes[link] = s
			}
		}
		what = "all links between servers"
	}
	return w.shaped(shapes, effect{}, "%s: %v", what, s)
}

// flap cuts a server off and connects it again, several times.
func flap(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	server, s := anyServer(random), anyCut(random)
	down, up := between(random, 100*ms, 1500*ms), between(random, 100*ms, 1500*ms)
	shapes := around(server, true, true, true, s)
	layer, err := w.layers.add(shapes)
	if err != nil {
		return nil, err
	}
	cut := true
	return &fault{
		what: fmt.Sprintf("all links of %s are %v for %v, healthy for %v, and so on",
			w.servers[server].Name, s, down.Round(ms), up.Round(ms)),
		end:  func() error { return w.layers.set(layer, nil) },
		next: down,
		again: func() (time.Duration, error) {
			cut = !cut
			if cut {
				return down, w.layers.set(layer, shapes)
			}
			return up, w.layers.set(layer, nil)
		},
	}, nil
}
