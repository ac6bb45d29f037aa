package fakeserver

import (
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// changes answers with the versions of a span between two timestamps. It never lets the request
// wait.
func (q *reading) changes(c *kvpb.ChangesRequest) *kvpb.Response {
	s, span := q.store, keys.Span{Start: c.Start, End: c.End}
	reads, _ := q.moment(c.Upto)
	s.pushLocks(q.partition, span, reads, nil)
	after := wire.FromTimestamp(c.After)
	out := &kvpb.ChangesResponse{Resolved: wire.ToTimestamp(hlc.Max(reads, after))}
	for key, versions := range q.partition.Data.Versions {
		if !span.Contains([]byte(key)) || !q.partition.Contains(key) {
			continue
		}
		above := after
		if key == string(c.Start) {
			above = hlc.Max(above, wire.FromTimestamp(c.ResumeVersion))
		}
		for _, v := range versions {
			if above.Less(v.At) && v.At.LessEq(reads) && !s.oneOf(s.Mistakes.LostChanges, 20) {
				out.Changes = append(out.Changes, &kvpb.Change{Key: []byte(key), Value: []byte(v.Value),
					Version: wire.ToTimestamp(v.At), Deleted: v.Tombstone})
			}
		}
	}
	slices.SortFunc(out.Changes, func(a, b *kvpb.Change) int {
		return cmp.Or(cmp.Compare(string(a.Key), string(b.Key)),
			wire.FromTimestamp(a.Version).Compare(wire.FromTimestamp(b.Version)))
	})
	if len(out.Changes) > s.PageRows {
		next := out.Changes[s.PageRows]
		out.Changes, out.More, out.Resume = out.Changes[:s.PageRows], true, next.Key
		if last := out.Changes[s.PageRows-1]; string(last.Key) == string(next.Key) {
			out.ResumeVersion = last.Version
		} else if string(next.Key) == string(c.Start) {
			out.ResumeVersion = c.ResumeVersion
		}
	}
	if s.Mistakes.EarlyResolved && !out.More {
		out.Resolved = wire.ToTimestamp(reads.Add(closedLag))
	}
	return &kvpb.Response{Result: &kvpb.Response_Changes{Changes: out}}
}
