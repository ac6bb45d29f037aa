package reader

import (
	"bytes"
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// keysPerRequest is how many keys one request of a BatchGet asks for.
const keysPerRequest = 256

// Group is keys of one partition.
type Group struct {
	partition *route.Partition
	keys      [][]byte
	// places are the indices of the keys in the call.
	places []int
	// at is when they were read.
	at hlc.Timestamp
	// parts replace the group if it turned out to be too large for one answer, or its partition has
	// changed.
	parts []*Group
}

// leaves are the groups that were read.
func leaves(groups []*Group, into []*Group) []*Group {
	for _, g := range groups {
		if g.parts == nil {
			into = append(into, g)
		} else {
			into = leaves(g.parts, into)
		}
	}
	return into
}

// Take takes the row of the key at an index of the call. Its Version is zero if the key has no
// value. It is valid until Take returns. Take may be called again for a key: the last row counts.
type Take func(i int, row wire.Row)

// ErrElsewhere says that keys, or records, are not in one partition any more.
var ErrElsewhere = errors.New("the keys are not in one partition any more")

// BatchGet reads many keys at one timestamp, which it returns: that of the query, or one that it
// finds.
func (k Keyspace) BatchGet(ctx context.Context, userKeys [][]byte, q *Query, n *Near,
	take Take) (at hlc.Timestamp, err error) {
	for {
		if at, err = k.batchGet(ctx, userKeys, q, n, take); !errors.Is(err, ErrElsewhere) {
			return at, err
		}
	}
}

// batchGet is BatchGet; ErrElsewhere means that the partitions changed meanwhile.
func (k Keyspace) batchGet(ctx context.Context, userKeys [][]byte, q *Query, n *Near,
	take Take) (at hlc.Timestamp, err error) {
	at = q.At
	groups, err := k.Groups(ctx, userKeys)
	if err != nil {
		return at, err
	}
	known := q.HasAt
	if n != nil && n.Linearizable && len(groups) > 1 {
		if at, err = k.snapshotOfGroups(ctx, groups); err != nil {
			return at, err
		}
		known = true
	}
	if err := k.ReadGroups(ctx, groups, at, nil, n, take); err != nil || known {
		return at, err
	}
	groups = leaves(groups, nil)
	for _, g := range groups {
		switch {
		case !n.Past():
			at = hlc.Max(at, g.at)
		case at.IsZero() || g.at.Less(at):
			at = g.at
		}
	}
	if n.Past() {
		at = hlc.Max(at, n.Near.AtLeast) // a leader's clock may be lower
	}
	var again []*Group
	for _, g := range groups {
		if g.at != at {
			again = append(again, g)
		}
	}
	return at, k.ReadGroups(ctx, again, at, nil, n, take)
}

// snapshotOfGroups finds a timestamp that is late enough for all groups.
func (k Keyspace) snapshotOfGroups(ctx context.Context,
	groups []*Group) (hlc.Timestamp, error) {
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
	return k.snapshotIn(ctx, parts, keys.Span{Start: first, End: keys.Point(last).End}, nil)
}

// Groups sorts the keys by partition.
func (k Keyspace) Groups(ctx context.Context,
	userKeys [][]byte) ([]*Group, error) {
	if _, err := k.Conn.Sender.PartitionsOf(ctx, k.ID, keys.Span{}); err != nil {
		return nil, err
	}
	ks := k.Conn.Sender.Table().KeyspaceByID(k.ID)
	if ks == nil {
		return nil, &route.Error{Cause: route.ErrNoKeyspace}
	}
	// The keys are counted first, to allocate little memory, which matters in a small read.
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
			return nil, ErrElsewhere
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
	all, groups := make([]*Group, len(counts)), make([]Group, len(counts))
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

// ReadGroups reads groups, those of one node together: within r, if it is not nil; from any
// replica, if n is not nil.
func (k Keyspace) ReadGroups(ctx context.Context, groups []*Group,
	at hlc.Timestamp, r Reading, n *Near, take Take) error {
	calls, asked := make([]*route.Call, len(groups)), make([]groupCall, len(groups))
	moment := wire.ToTimestamp(at)
	for i, g := range groups {
		calls[i] = g.call(&asked[i], k.ID, moment, r)
	}
	var large, moved []*Group
	err := n.doAll(ctx, k.Conn.Sender, calls, at,
		func(i int, answer route.Answer, err error) error {
			switch {
			case tooLarge(err) && len(groups[i].keys) > 1:
				large = append(large, groups[i])
			case errors.Is(err, ErrElsewhere):
				moved = append(moved, groups[i])
			case err != nil:
				return err
			default:
				return groups[i].take(answer, r, take)
			}
			return nil
		})
	for _, g := range large {
		if err == nil {
			err = k.ReadGroups(ctx, g.Halve(), at, r, n, take)
		}
	}
	for _, g := range moved {
		if err == nil {
			if err = k.regroup(ctx, g); err == nil {
				err = k.ReadGroups(ctx, g.parts, at, r, n, take)
			}
		}
	}
	return err
}

// regroup sorts the keys of a group by partition again. Other groups keep their values, which do
// not change at their timestamp.
func (k Keyspace) regroup(ctx context.Context, g *Group) error {
	parts, err := k.Groups(ctx, g.keys)
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

// ReadFirst reads a group as the first read of r: the node chooses the timestamp, or may move it
// up. large is set if the values do not fit into one answer, and nothing was read.
func (k Keyspace) ReadFirst(ctx context.Context, g *Group, at hlc.Timestamp, r Reading, n *Near,
	take Take) (large bool, err error) {
	var asked groupCall
	call := g.call(&asked, k.ID, wire.ToTimestamp(at), r)
	asked.movable = true
	answer, err := n.Do(ctx, k.Conn.Sender, call, Part{At: at})
	if tooLarge(err) && len(g.keys) > 1 {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := g.take(answer, r, take); err != nil {
		return false, err
	}
	_, err = r.ReadAt(answer, g.at, true)
	return false, err
}

// tooLarge reports whether a node refused a request because its answer would be too large.
func tooLarge(err error) bool {
	var r *route.Error
	return errors.As(err, &r) && r.Code == kvpb.ErrorCode_INVALID_ARGUMENT && r.Cause == nil
}

// groupCall reads a group.
type groupCall struct {
	call    route.Call
	request kvpb.Request
	command kvpb.Request_BatchGet
	get     kvpb.BatchGetRequest
	group   *Group
	reading Reading
	// movable as in Reading.Context.
	movable bool
}

// call reads the group. It fills in c.
func (g *Group) call(c *groupCall, id keys.KeyspaceID, at *kvpb.Timestamp, r Reading) *route.Call {
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
		c.get.Context = c.reading.Context(p, l.Node, c.movable, false)
	}
	if was := c.group.partition; p.ID == was.ID && p.Generation == was.Generation {
		return nil
	}
	return ErrElsewhere
}

// take passes on what was read.
func (g *Group) take(answer route.Answer, r Reading, take Take) error {
	if r != nil {
		r.Answered(answer)
	}
	if answer.Shared {
		g.takeRows(answer.Rows, take)
		return nil
	}
	got := answer.GetBatchGet()
	if len(got.GetValues()) != len(g.keys) {
		return &route.Error{Message: "the node answered with another number of values than keys " +
			"were asked for",
			Partition: answer.Partition.ID, Node: answer.Node}
	}
	g.at = wire.FromTimestamp(got.At)
	for i, v := range got.Values {
		row := wire.Row{Key: g.keys[i]}
		if v.Found {
			row.Value, row.Version = v.Value, wire.FromTimestamp(v.Version)
			row.Expires = int64(v.Expires)
		}
		take(g.places[i], row)
	}
	return nil
}

// takeRows passes on the rows of keys with a value, and empty rows for the others.
func (g *Group) takeRows(rows []wire.Row, take Take) {
	for i, key := range g.keys {
		if len(rows) > 0 && bytes.Equal(rows[0].Key, key) {
			take(g.places[i], rows[0])
			rows = rows[1:]
			continue
		}
		take(g.places[i], wire.Row{Key: key})
	}
}

// Halve makes two groups of one whose values are too large for one answer.
func (g *Group) Halve() []*Group {
	middle := len(g.keys) / 2
	low, high := *g, *g
	low.keys, low.places = g.keys[:middle], g.places[:middle]
	high.keys, high.places = g.keys[middle:], g.places[middle:]
	g.parts = []*Group{&low, &high}
	return g.parts
}
