package consumer

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// at is the timestamp of a moment so long before noon.
func at(before time.Duration) hlc.Timestamp { return hlc.FromTime(noon.Add(-before)) }

// behind is a consumer that stands so long before noon, with a keep of an hour.
func behind(by time.Duration) Record {
	return Record{&clusterpb.Consumer{Position: wire.ToClusterTimestamp(at(by)),
		KeepMillis: uint64(time.Hour.Milliseconds())}, 1}
}

func asked(position hlc.Timestamp) *clusterpb.SetConsumerRequest {
	return &clusterpb.SetConsumerRequest{Name: "c", Keyspace: "k",
		Position: wire.ToClusterTimestamp(position)}
}

// TestMove: what moves a consumer, and what is refused and leaves it as it is.
func TestMove(t *testing.T) {
	now := Times{Wall: noon, Proven: noon}
	old := behind(30 * time.Minute)
	fresh := Record{&clusterpb.Consumer{KeepMillis: old.KeepMillis}, 0}
	dropped := behind(2 * time.Hour)
	dropped.TooOld = true
	back := asked(at(45 * time.Minute))
	back.Reset_ = true
	restart := asked(at(time.Minute))
	restart.Reset_ = true
	narrow := asked(at(time.Minute))
	narrow.Span = &clusterpb.ConsumerSpan{Start: []byte("a"), End: []byte("b")}
	shorter := asked(hlc.Timestamp{})
	shorter.KeepMillis = uint64(time.Minute.Milliseconds())
	for name, x := range map[string]struct {
		of     Record
		r      *clusterpb.SetConsumerRequest
		others int
		want   codes.Code
	}{
		"on":                           {old, asked(at(time.Minute)), 0, codes.OK},
		"nowhere":                      {old, asked(hlc.Timestamp{}), 0, codes.OK},
		"back":                         {old, asked(at(45 * time.Minute)), 0, codes.FailedPrecondition},
		"back by a reset":              {old, back, 0, codes.OK},
		"into the future":              {old, asked(at(-time.Minute)), 0, codes.InvalidArgument},
		"a little ahead":               {old, asked(at(-time.Second)), 0, codes.OK},
		"to other keys":                {old, narrow, 0, codes.FailedPrecondition},
		"a keep that is over":          {old, shorter, 0, codes.OutOfRange},
		"a new one":                    {fresh, asked(at(time.Minute)), MaxOfKeyspace - 1, codes.OK},
		"a new one without position":   {fresh, asked(hlc.Timestamp{}), 0, codes.InvalidArgument},
		"a new one too many":           {fresh, asked(at(0)), MaxOfKeyspace, codes.ResourceExhausted},
		"a new one beyond its keep":    {fresh, asked(at(2 * time.Hour)), 0, codes.OutOfRange},
		"one that is too old":          {dropped, asked(at(0)), 0, codes.OutOfRange},
		"one that is too old, anew":    {dropped, restart, 0, codes.OK},
		"on from beyond its keep":      {behind(3 * time.Hour), asked(at(2 * time.Hour)), 0, codes.OK},
		"one of the most there can be": {old, asked(at(0)), MaxOfKeyspace, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			c := Record{proto.Clone(x.of.Consumer).(*clusterpb.Consumer), x.of.Revision}
			err := c.Move(x.r, x.others, now, 10*time.Second)
			switch {
			case status.Code(err) != x.want:
				t.Fatalf("%v, want %v", err, x.want)
			case err != nil && c.At() != x.of.At():
				t.Errorf("it was refused, and stands at %s", c.At())
			case err == nil && c.TooOld:
				t.Error("it is too old")
			case err == nil && x.r.Position != nil && !wire.FromClusterTimestamp(x.r.Position).IsZero() &&
				c.At() != wire.FromClusterTimestamp(x.r.Position):
				t.Errorf("it stands at %s", c.At())
			}
		})
	}
}

// TestProtection: the lowest position is protected once half of the window is over for it, and
// without a proven time nothing that is protected is given up.
func TestProtection(t *testing.T) {
	old := behind(3 * time.Hour)
	old.TooOld = true
	if lowest := Lowest([]Record{behind(time.Hour), old, behind(2 * time.Hour)}); lowest !=
		at(2*time.Hour) {
		t.Errorf("the lowest position is %s", lowest)
	}
	if lowest := Lowest([]Record{old}); !lowest.IsZero() {
		t.Errorf("without consumers that are kept the lowest position is %s", lowest)
	}
	none := hlc.Timestamp{}
	proven, unproven := Times{Wall: noon, Proven: noon}, Times{Wall: noon.Add(time.Hour)}
	for name, x := range map[string]struct {
		known, lowest, want hlc.Timestamp
		window              time.Duration
		now                 Times
	}{
		"within half of the window": {none, at(11 * time.Minute), none, time.Hour, proven},
		"beyond it": {none, at(31 * time.Minute), at(31 * time.Minute), time.Hour,
			proven},
		"in a short window":    {none, at(0), at(0), time.Second, proven},
		"no consumer any more": {at(time.Hour), none, none, time.Second, proven},
		"it follows": {at(2 * time.Hour), at(time.Hour), at(time.Hour), time.Hour,
			proven},
		"unproven, higher": {at(2 * time.Hour), at(time.Hour), at(2 * time.Hour), time.Hour,
			unproven},
		"unproven, lower": {at(time.Hour), at(2 * time.Hour), at(2 * time.Hour), time.Hour,
			unproven},
		"unproven, without":   {at(time.Hour), none, at(time.Hour), time.Hour, unproven},
		"unproven, the first": {none, at(time.Hour), at(time.Hour), time.Hour, unproven},
	} {
		if got := Protection(x.known, x.lowest, x.window, x.now); got != x.want {
			t.Errorf("%s: %s is protected, want %s", name, got, x.want)
		}
	}
}

// TestLag: consumers that are too old count as that alone; the others by how far they are behind.
func TestLag(t *testing.T) {
	old := behind(3 * time.Hour)
	old.TooOld = true
	l := LagOf("k", []Record{behind(15 * time.Minute), old, behind(-time.Minute)}, noon)
	if l.kept() != 2 || l.old != 1 || l.lag != 15*time.Minute || l.used != 0.25 {
		t.Errorf("%+v", l)
	}
}
