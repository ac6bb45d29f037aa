package kv

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// keysPerRequest is how many keys one request of a BatchGet asks for.
	keysPerRequest = 256
)

// BatchGet reads many keys, of any partitions, at one timestamp. It returns a pair for each key, in
// the order of the keys; those without a value have a pair for which Exists is false.
//
// Over several partitions it takes two rounds: every partition is first read at the latest moment,
// which shows the moment that is late enough for all of them, and is then read as of that one. With
// Nearest, MaxStaleness, AnyStaleness or ReadYourWrites it is the earliest that a replica answers
// for. With LinearizableFollower the leaders say which moment is late enough, and replicas read it.
func (k *Keyspace) BatchGet(ctx context.Context, userKeys [][]byte,
	options ...GetOption) ([]Pair, error) {
	const op = "batch-get"
	var q query
	for _, o := range options {
		o.get(&q)
	}
	if bad := q.check(); bad != "" {
		return nil, invalid(op, k.name, nil, "%s", bad)
	}
	for _, key := range userKeys {
		if err := k.check(op, key, nil, ""); err != nil {
			return nil, err
		}
	}
	pairs := make([]Pair, len(userKeys))
	if len(userKeys) == 0 {
		return pairs, nil
	}
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	ks, err := k.resolve(ctx, op)
	if err != nil {
		return nil, err
	}
	n, err := k.client.nearRead(ctx, ks, &q)
	if err != nil {
		return nil, wrap(op, k.name, nil, err)
	}
	for {
		err := k.batchGet(ctx, ks.ID, userKeys, &q, n, pairs)
		if !errors.Is(err, errElsewhere) {
			if err != nil {
				return nil, wrap(op, k.name, nil, err)
			}
			return pairs, nil
		}
	}
}

// group is keys of one partition.
type group struct {
	partition *route.Partition
	keys      [][]byte
	// places are the indices of the keys in the call.
	places []int
	// at is when they were read.
	at Timestamp
	// parts take the group's place when it turned out to hold too much for one answer, or its
	// partition is not what it was.
	parts []*group
}

// leaves are the groups that were read.
func leaves(groups []*group, into []*group) []*group {
	for _, g := range groups {
		if g.parts == nil {
			into = append(into, g)
		} else {
			into = leaves(g.parts, into)
		}
	}
	return into
}

// batchGet reads everything into pairs; errElsewhere means that the partitions changed meanwhile.
func (k *Keyspace) batchGet(ctx context.Context, id keys.KeyspaceID, userKeys [][]byte,
	q *query, n *nearRead, pairs []Pair) error {
	at, began := q.at, time.Now()
	groups, err := k.groups(ctx, id, userKeys)
	if err != nil {
		return err
	}
	known := q.hasAt
	if n != nil && n.linearizable && len(groups) > 1 {
		if at, err = k.momentOfGroups(ctx, id, groups); err != nil {
			return err
		}
		known = true
	}
	if err := k.readGroups(ctx, id, groups, at, nil, n, pairs); err != nil {
		return err
	}
	if !known {
		groups = leaves(groups, nil)
		for _, g := range groups {
			switch {
			case !n.past():
				at = hlc.Max(at, g.at)
			case at.IsZero() || g.at.Less(at):
				at = g.at
			}
		}
		if n.past() {
			at = hlc.Max(at, n.near.AtLeast) // a leader's clock may be lower
		}
		var again []*group
		for _, g := range groups {
			if g.at != at {
				again = append(again, g)
			}
		}
		if err := k.readGroups(ctx, id, again, at, nil, n, pairs); err != nil {
			return err
		}
	}
	k.client.note(q, began, at, 0, !n.past() && !q.hasAt)
	return nil
}

// momentOfGroups finds a moment that is late enough for all groups.
func (k *Keyspace) momentOfGroups(ctx context.Context, id keys.KeyspaceID,
	groups []*group) (Timestamp, error) {
	var parts []*route.Partition
	seen := make(map[*route.Partition]bool, len(groups))
	first, last := groups[0].keys[0], groups[0].keys[0]
	for _, g := range groups {
		if !seen[g.partition] {
			seen[g.partition] = true
			parts = append(parts, g.partition)
		}
		for _, key := range g.keys {
			if bytes.Compare(key, first) < 0 {
				first = key
			} else if bytes.Compare(last, key) < 0 {
				last = key
			}
		}
	}
	return k.momentIn(ctx, id, parts, keys.Span{Start: first, End: keys.Point(last).End}, nil)
}

// groups sorts the keys by partition.
func (k *Keyspace) groups(ctx context.Context, id keys.KeyspaceID,
	userKeys [][]byte) ([]*group, error) {
	if _, err := k.client.conn.Sender.PartitionsOf(ctx, id, keys.Span{}); err != nil {
		return nil, err
	}
	ks := k.client.conn.Sender.Table().KeyspaceByID(id)
	if ks == nil {
		return nil, &route.Error{Cause: route.ErrNoKeyspace}
	}
	// First it is counted, so that little memory is asked for: in a small read that counts.
	type count struct {
		partition *route.Partition
		keys      int
	}
	// One partition may be shown twice, by descriptors of two generations: that is two groups.
	open := make(map[*route.Partition]int)
	var few [16]count
	var fewOf [32]int
	counts, of := few[:0], append(fewOf[:0], make([]int, len(userKeys))...)
	for i, key := range userKeys {
		p := ks.ByKey(key)
		if p == nil {
			return nil, errElsewhere
		}
		at, known := open[p]
		if !known || counts[at].keys == keysPerRequest {
			at = len(counts)
			open[p] = at
			counts = append(counts, count{partition: p})
		}
		counts[at].keys++
		of[i] = at
	}
	all, groups := make([]*group, len(counts)), make([]group, len(counts))
	allKeys, places := make([][]byte, len(userKeys)), make([]int, len(userKeys))
	for i, c := range counts {
		g := &groups[i]
		all[i] = g
		g.partition = c.partition
		g.keys, allKeys = allKeys[:0:c.keys], allKeys[c.keys:]
		g.places, places = places[:0:c.keys], places[c.keys:]
	}
	for i, key := range userKeys {
		g := all[of[i]]
		g.keys, g.places = append(g.keys, key), append(g.places, i)
	}
	return all, nil
}

// readGroups reads groups, those of one node together; for r, if it is not nil; from any replica,
// if n is not nil.
func (k *Keyspace) readGroups(ctx context.Context, id keys.KeyspaceID, groups []*group,
	at Timestamp, r *reading, n *nearRead, pairs []Pair) error {
	calls, asked := make([]*route.Call, len(groups)), make([]groupCall, len(groups))
	wire := toWire(at)
	for i, g := range groups {
		calls[i] = g.call(&asked[i], id, wire, r)
	}
	var large, moved []*group
	err := n.doAll(ctx, k.client.conn.Sender, calls, at,
		func(i int, answer route.Answer, err error) error {
			_, tooLarge := isCode(err, kvpb.ErrorCode_INVALID_ARGUMENT)
			switch {
			case tooLarge && len(groups[i].keys) > 1:
				large = append(large, groups[i])
			case errors.Is(err, errElsewhere):
				moved = append(moved, groups[i])
			case err != nil:
				return err
			default:
				return groups[i].take(answer, r, pairs)
			}
			return nil
		})
	for _, g := range large {
		if err == nil {
			err = k.readGroups(ctx, id, g.halve(), at, r, n, pairs)
		}
	}
	for _, g := range moved {
		if err == nil {
			if err = k.regroup(ctx, id, g); err == nil {
				err = k.readGroups(ctx, id, g.parts, at, r, n, pairs)
			}
		}
	}
	return err
}

// regroup sorts the keys of a group by partition once more. The others keep what they have read: it
// stays what there is at their moment.
func (k *Keyspace) regroup(ctx context.Context, id keys.KeyspaceID, g *group) error {
	parts, err := k.groups(ctx, id, g.keys)
	if err != nil {
		return err
	}
	for _, part := range parts {
		for i, at := range part.places {
			part.places[i] = g.places[at]
		}
	}
	g.parts = parts
	return nil
}

// readFirst reads a group, before which nothing was read: the node chooses the moment, or may move
// it up.
func (k *Keyspace) readFirst(ctx context.Context, id keys.KeyspaceID, g *group, r *reading,
	pairs []Pair) error {
	var asked groupCall
	call := g.call(&asked, id, toWire(r.at), r)
	asked.movable = true
	answer, err := r.near.do(ctx, k.client.conn.Sender, call, part{at: r.at})
	if _, tooLarge := isCode(err, kvpb.ErrorCode_INVALID_ARGUMENT); tooLarge && len(g.keys) > 1 {
		if err := r.begin(ctx); err != nil {
			return err
		}
		return k.readGroups(ctx, id, g.halve(), r.at, r, r.near, pairs)
	}
	if err != nil {
		return err
	}
	if err := g.take(answer, r, pairs); err != nil {
		return err
	}
	return r.readAt(answer, g.at, true)
}

// groupCall is what reads a group.
type groupCall struct {
	call    route.Call
	request kvpb.Request
	command kvpb.Request_BatchGet
	get     kvpb.BatchGetRequest
	group   *group
	reading *reading
	// movable as in reading.context.
	movable bool
}

// call reads the group. It fills in c.
func (g *group) call(c *groupCall, id keys.KeyspaceID, at *kvpb.Timestamp, r *reading) *route.Call {
	c.get.Keys, c.get.At = g.keys, at
	c.command.BatchGet = &c.get
	c.request.Command = &c.command
	c.call.Keyspace, c.call.Key, c.call.Request = id, g.keys[0], &c.request
	c.group, c.reading, c.call.Prepare = g, r, c
	return &c.call
}

// Prepare implements route.Preparer.
func (c *groupCall) Prepare(p *route.Partition, l route.Leader) error {
	if c.reading != nil {
		c.get.Context = c.reading.context(p, l.Node, c.movable, false)
	}
	if was := c.group.partition; p.ID == was.ID && p.Generation == was.Generation {
		return nil
	}
	return errElsewhere
}

// take puts what was read into pairs.
func (g *group) take(answer route.Answer, r *reading, pairs []Pair) error {
	if r != nil {
		r.answered(answer)
	}
	if answer.Shared {
		g.takeRows(answer.Rows, pairs)
		return nil
	}
	got := answer.GetBatchGet()
	if len(got.GetValues()) != len(g.keys) {
		return &route.Error{Message: "the node answered with another number of values than keys " +
			"were asked for",
			Partition: answer.Partition.ID, Node: answer.Node}
	}
	g.at = fromWire(got.At)
	for i, v := range got.Values {
		pair := Pair{Key: clone(g.keys[i])}
		if v.Found {
			pair.Value, pair.Version = owned(v.Value), fromWire(v.Version)
			pair.Expires = expiryOf(v.Expires)
		}
		pairs[g.places[i]] = pair
	}
	return nil
}

// takeRows puts the rows of those keys that have a value into pairs.
func (g *group) takeRows(rows []wire.Row, pairs []Pair) {
	for i, key := range g.keys {
		if len(rows) > 0 && bytes.Equal(rows[0].Key, key) {
			pairs[g.places[i]] = pairOf(&rows[0])
			rows = rows[1:]
			continue
		}
		pairs[g.places[i]] = Pair{Key: clone(key)}
	}
}

// halve makes two groups of one whose values are too large for one answer.
func (g *group) halve() []*group {
	middle := len(g.keys) / 2
	low, high := *g, *g
	low.keys, low.places = g.keys[:middle], g.places[:middle]
	high.keys, high.places = g.keys[middle:], g.places[middle:]
	g.parts = []*group{&low, &high}
	return g.parts
}
