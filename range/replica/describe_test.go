package replica

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// stamp prints a timestamp as milliseconds since the epoch of the test, with what is finer behind
// it.
func stamp(t hlc.Timestamp) string {
	if t.IsZero() {
		return "-"
	}
	since := t.Wall - epoch
	s := fmt.Sprintf("t%d", since/1e6)
	if rest := since % 1e6; rest != 0 {
		s += fmt.Sprintf("+%dns", rest)
	}
	if t.Logical != 0 {
		s += fmt.Sprintf(".%d", t.Logical)
	}
	return s
}

// roughStamp is wireStamp without the logical counter, which depends on what else reads the clock
// meanwhile.
func roughStamp(t *kvpb.Timestamp) string {
	if t == nil || t.Logical == 0 {
		return wireStamp(t)
	}
	return stamp(hlc.Timestamp{Wall: int64(t.Wall)}) + ".x"
}

func wireStamp(t *kvpb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return stamp(hlc.Timestamp{Wall: int64(t.Wall), Logical: t.Logical})
}

var clockReading = regexp.MustCompile(`the clock stands at [0-9.]+`)

// describe prints a response.
func describe(response *kvpb.Response) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#%d ", response.Id)
	if e := response.Error; e != nil {
		// How often the clock was asked before depends on how the goroutines ran.
		fmt.Fprintf(&b, "%s: %s", e.Code, clockReading.ReplaceAllString(e.Message,
			"the clock stands at its time"))
		if e.Leader != nil {
			fmt.Fprintf(&b, " (leader: node %d, term %d)", e.Leader.Node, e.Leader.Term)
		}
		if e.NotExecuted {
			b.WriteString(" (not executed)")
		}
		for _, p := range e.Partitions {
			fmt.Fprintf(&b, " (descriptor: generation %d)", p.Generation)
		}
		if c := e.Conflict; c != nil {
			of := ""
			if c.Keyspace != 0 {
				of = fmt.Sprintf(" of keyspace %d", c.Keyspace)
			}
			fmt.Fprintf(&b, " (conflict: key %q%s, transaction %s, %s)", c.Key, of,
				shortID(c.Transaction), c.Reason)
		}
		if e.Timestamp != nil && e.Code != kvpb.ErrorCode_TIMESTAMP_IN_FUTURE { // the clock's
			fmt.Fprintf(&b, " (timestamp %s)", wireStamp(e.Timestamp))
		}
		if response.ClockUntrusted {
			b.WriteString(" (clock untrusted)")
		}
		return b.String()
	}
	switch x := response.Result.(type) {
	case *kvpb.Response_Put:
		fmt.Fprintf(&b, "put at %s", wireStamp(x.Put.Version))
	case *kvpb.Response_Delete:
		fmt.Fprintf(&b, "deleted, existed %t, at %s", x.Delete.Existed, wireStamp(x.Delete.Version))
	case *kvpb.Response_CompareAndSwap:
		s := x.CompareAndSwap
		switch {
		case s.Swapped:
			fmt.Fprintf(&b, "swapped at %s", wireStamp(s.Version))
		case s.Found:
			fmt.Fprintf(&b, "not swapped: is %q of %s%s", s.Current, wireStamp(s.CurrentVersion),
				expiry(int64(s.CurrentExpires)))
		default:
			fmt.Fprintf(&b, "not swapped: is absent")
		}
	case *kvpb.Response_Increment:
		fmt.Fprintf(&b, "is %d at %s", x.Increment.Value, wireStamp(x.Increment.Version))
	case *kvpb.Response_WriteBatch:
		fmt.Fprintf(&b, "batch at %s", wireStamp(x.WriteBatch.Version))
	case *kvpb.Response_DeleteRange:
		d := x.DeleteRange
		fmt.Fprintf(&b, "deleted %d keys at %s", d.Deleted, wireStamp(d.Version))
		if d.More {
			fmt.Fprintf(&b, ", more from %q", d.Resume)
		}
	case *kvpb.Response_Load:
		fmt.Fprintf(&b, "loaded %d records at %s, %d were there", x.Load.Written,
			wireStamp(x.Load.Version), x.Load.Present)
	case *kvpb.Response_Get:
		fmt.Fprint(&b, describeGet(x.Get))
	case *kvpb.Response_BatchGet:
		fmt.Fprintf(&b, "at %s:", roughStamp(x.BatchGet.At))
		for _, g := range x.BatchGet.Values {
			fmt.Fprintf(&b, " [%s]", describeGet(g))
		}
	case *kvpb.Response_MultiGet:
		fmt.Fprint(&b, "of several:")
		for _, p := range rowsOf(x.MultiGet.Rows) {
			fmt.Fprintf(&b, " %s=%q(%s%s)", p.Key, p.Value, stamp(p.Version), expiry(p.Expires))
		}
		for _, p := range x.MultiGet.Refused {
			fmt.Fprintf(&b, " %d refuses: %s", p.Partition,
				describe(&kvpb.Response{Id: response.Id, Error: p.Error}))
		}
		if len(x.MultiGet.Alone) > 0 {
			fmt.Fprintf(&b, " alone: %d", x.MultiGet.Alone)
		}
	case *kvpb.Response_Scan:
		fmt.Fprintf(&b, "at %s:", roughStamp(x.Scan.At))
		for _, p := range rowsOf(x.Scan.Rows) {
			fmt.Fprintf(&b, " %s=%q(%s%s)", p.Key, p.Value, stamp(p.Version), expiry(p.Expires))
		}
		if x.Scan.More {
			fmt.Fprintf(&b, " more from %q", x.Scan.Resume)
		}
	case *kvpb.Response_Changes:
		fmt.Fprintf(&b, "up to %s:", roughStamp(x.Changes.Resolved))
		for _, c := range x.Changes.Changes {
			value := strconv.Quote(string(c.Value))
			if c.Deleted {
				value = "deleted"
			}
			fmt.Fprintf(&b, " %s=%s(%s%s)", c.Key, value, wireStamp(c.Version), expiry(int64(c.Expires)))
		}
		if x.Changes.More {
			fmt.Fprintf(&b, " more from %q above %s", x.Changes.Resume,
				wireStamp(x.Changes.ResumeVersion))
		}
	case *kvpb.Response_Prepare:
		fmt.Fprintf(&b, "prepared at %s", wireStamp(x.Prepare.Prepared))
		if x.Prepare.Held {
			fmt.Fprint(&b, ", held")
		}
		for _, g := range x.Prepare.Values {
			fmt.Fprintf(&b, " [%s]", describeGet(g))
		}
		if l := x.Prepare.Leadership; l != nil {
			fmt.Fprintf(&b, " under %d.%d", l.Term, l.Epoch)
		}
	case *kvpb.Response_EndTransaction:
		fmt.Fprintf(&b, "ended: %s", describeStatus(x.EndTransaction.Status))
		if x.EndTransaction.Unknown {
			fmt.Fprint(&b, " (unknown)")
		}
	case *kvpb.Response_Push:
		fmt.Fprintf(&b, "pushed: %s", describeStatus(x.Push.Status))
	case *kvpb.Response_HeartbeatTransaction:
		fmt.Fprintf(&b, "heard: %s", describeStatus(x.HeartbeatTransaction.Status))
	case *kvpb.Response_Resolve:
		fmt.Fprintf(&b, "resolved %d", x.Resolve.Resolved)
	case *kvpb.Response_Refresh:
		fmt.Fprint(&b, "refreshed")
	case *kvpb.Response_InspectTransactions:
		fmt.Fprint(&b, describeTransactions(x.InspectTransactions))
	case *kvpb.Response_Count:
		fmt.Fprintf(&b, "at %s: %d", roughStamp(x.Count.At), x.Count.Count)
		if x.Count.More {
			fmt.Fprintf(&b, " more from %q", x.Count.Resume)
		}
	}
	if a := response.Admission; a != nil {
		fmt.Fprintf(&b, "admitted at %s, index %d", roughStamp(a.At), a.Index)
		if a.UncertainUntil != nil {
			fmt.Fprintf(&b, ", uncertain until %s", wireStamp(a.UncertainUntil))
		}
	}
	if response.ReadAt != nil {
		fmt.Fprintf(&b, " (as of %s)", wireStamp(response.ReadAt))
	}
	if response.ClockUntrusted {
		b.WriteString(" (clock untrusted)")
	}
	return b.String()
}

func describeGet(g *kvpb.GetResponse) string {
	at := ""
	if g.At != nil {
		at = ", read at " + roughStamp(g.At)
	}
	if !g.Found {
		return "absent" + at
	}
	return fmt.Sprintf("%q of %s%s%s", g.Value, wireStamp(g.Version), expiry(int64(g.Expires)), at)
}

// expiry says when a value expires; empty if it does not.
func expiry(wall int64) string {
	if wall == 0 {
		return ""
	}
	return ", expires " + stamp(hlc.Timestamp{Wall: wall})
}

// rowsOf are the rows of an encoded page.
func rowsOf(encoded []byte) []wire.Row {
	rows, err := wire.DecodeRows(encoded)
	if err != nil {
		panic(err)
	}
	return rows
}
