package command

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Changes reads the versions of a span between two timestamps.
var Changes = register((*kvpb.Request_Changes)(nil), Command{
	Name:     "changes",
	Dispatch: AtTimestamp,
	Body:     func(q *kvpb.Request) bool { return q.GetChanges() != nil },
	Lasting:  true,
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		c := q.GetChanges()
		return request.NeedSpan(needs, at.Keyspace, access.Read, c.GetStart(), c.GetEnd())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Span(q.GetChanges().Start, q.GetChanges().End)
	},
	Named:      func(q *kvpb.Request) int64 { return wall(q.GetChanges().GetUpto()) },
	Foreground: always,
	CheckRead:  checkChanges,
	Read:       changes,
})

// Changing holds the parameters of a read of changes.
type Changing struct {
	// After is the timestamp above which versions are read: versions below it may have been
	// collected.
	After hlc.Timestamp
	// Idle is how long the request may be held while there is nothing to answer.
	Idle time.Duration
}

// maxChangesBytes bounds a page of changes, keys and values. changeOverhead is the additional
// memory of a change, here and at the client.
const maxChangesBytes, changeOverhead = 1 << 20, 128

// maxUnchanged bounds the keys without a change that a page of changes looks at.
const maxUnchanged = 100_000

// maxIdle bounds how long a request is held.
const maxIdle = 10 * time.Second

func checkChanges(d *clusterpb.Partition, q *kvpb.Request) (r Reading, p *request.Problem) {
	c := q.GetChanges()
	r.At = wire.FromTimestamp(c.GetUpto())
	r.Changes = &Changing{After: wire.FromTimestamp(c.GetAfter()),
		Idle: min(time.Duration(min(c.GetIdleMicros(), uint64(maxIdle.Microseconds())))*
			time.Microsecond, maxIdle)}
	if !r.At.IsZero() && r.At.Less(r.Changes.After) {
		return r,
			request.Invalid("changes up to %s are asked for, which is before %s, after which they "+
				"are to begin",
				r.At, r.Changes.After)
	}
	return r, request.CheckSpan(d, c.GetStart(), c.GetEnd())
}

// changes reads a page.
func changes(v *View, q *kvpb.Request) (*kvpb.Response, error) {
	c := q.GetChanges()
	after := wire.FromTimestamp(c.GetAfter())
	m := &kvpb.ChangesResponse{Resolved: wire.ToTimestamp(hlc.Max(v.At, after))}
	response := &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Changes{Changes: m}}
	span := request.InternalSpan(v.Descriptor, c.Start, c.End)
	if span.Empty() {
		return response, nil
	}
	o := mvcc.ChangesOptions{Span: span, After: hlc.Max(after, v.Since), Upto: v.At,
		MaxBytes: maxChangesBytes, Overhead: changeOverhead, MaxSkipped: maxUnchanged}
	if asked := int64(c.LimitBytes); asked > 0 {
		o.MaxBytes = min(asked, maxChangesBytes)
	}
	if bytes.Equal(keys.UserKey(v.Descriptor, span.Start), c.Start) {
		o.AfterOfFirst = wire.FromTimestamp(c.GetResumeVersion())
	}
	result, err := mvcc.Changes(v.State, o, func(key []byte, version mvcc.Version) error {
		m.Changes = append(m.Changes, &kvpb.Change{Key: bytes.Clone(keys.UserKey(v.Descriptor, key)),
			Version: wire.ToTimestamp(version.Timestamp), Deleted: version.Kind == mvcc.KindTombstone,
			Value: bytes.Clone(version.Value), Expires: uint64(version.Expires)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.Seen = result.CommitWaitUntil
	if m.More = result.More; m.More {
		m.Resume = bytes.Clone(keys.UserKey(v.Descriptor, result.Resume))
		if !result.ResumeVersion.IsZero() {
			m.ResumeVersion = wire.ToTimestamp(result.ResumeVersion)
		}
		return response, nil
	}
	slices.SortStableFunc(m.Changes, func(a, b *kvpb.Change) int {
		return cmp.Or(cmp.Compare(a.Version.Wall, b.Version.Wall),
			cmp.Compare(a.Version.Logical, b.Version.Logical))
	})
	return response, nil
}
