package command

import (
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// Commands of the core's log are written and read as in every release. A format that has no gate is
// one that every version knows whose members can be in one core.
func TestGolden(t *testing.T) {
	encode := func(c *storepb.Command) []byte {
		data, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	commands := []struct {
		name   string
		format byte
		c      *storepb.Command
	}{
		{"txn", FirstFormat, &storepb.Command{Session: 9, Sequence: 7, Op: &storepb.Command_Txn{
			Txn: &storepb.Txn{
				Compare: []*storepb.Compare{{Key: []byte("a"), Target: storepb.Compare_VERSION}},
				Success: []*storepb.Op{put("a")}, Failure: []*storepb.Op{{Op: &storepb.Op_DeleteRange{
					DeleteRange: &storepb.DeleteRange{Key: []byte("a"), RangeEnd: []byte("b")}}}}}}}},
		{"compare", CompareFormat, &storepb.Command{Op: &storepb.Command_Txn{Txn: &storepb.Txn{
			Compare: []*storepb.Compare{{Key: []byte("a"), RangeEnd: []byte("b")}}}}}},
		{"members", membersFormat, &storepb.Command{Op: &storepb.Command_ChangeMembers{
			ChangeMembers: &storepb.ChangeMembers{Version: 3, Next: &storepb.Members{Version: 4,
				Members: []*storepb.Member{{Replica: 1, Server: 2, Address: "a:1"}}}}}}},
		{"options", OptionsFormat, &storepb.Command{Op: &storepb.Command_Txn{Txn: &storepb.Txn{
			Success: []*storepb.Op{{Op: &storepb.Op_Range{Range: &storepb.Range{Key: []byte("a"),
				SortOrder: 1}}}}}}}},
		{"grant", FirstFormat, &storepb.Command{Op: &storepb.Command_LeaseGrant{
			LeaseGrant: &storepb.LeaseGrant{Id: 1, TtlMillis: 5000}}}},
		{"checkpoint", checkpointFormat, &storepb.Command{Op: &storepb.Command_LeaseCheckpoint{
			LeaseCheckpoint: &storepb.LeaseCheckpoint{}}}},
		{"auth", AuthFormat, &storepb.Command{Op: &storepb.Command_AuthChange{
			AuthChange: &storepb.AuthChange{}}}},
		{"import", ImportFormat, &storepb.Command{Op: &storepb.Command_Import{
			Import: &storepb.Import{Id: 1, Step: 1, Revision: 5}}}},
		{"alarm", AlarmFormat, &storepb.Command{Op: &storepb.Command_AlarmChange{
			AlarmChange: &storepb.AlarmChange{Alarm: &storepb.Alarm{Member: 1,
				Type: storepb.Alarm_CORRUPT}}}}},
		{"compact", FirstFormat, &storepb.Command{Op: &storepb.Command_Compact{
			Compact: &storepb.Compact{Revision: 5}}}},
		{"compact-in-parts", CompactFormat, &storepb.Command{Op: &storepb.Command_Compact{
			Compact: &storepb.Compact{Revision: 5, Events: 10}}}},
	}
	for _, x := range commands {
		if format := FormatOf(x.c); format != x.format {
			t.Errorf("%s has format %d, want %d", x.name, format, x.format)
		}
	}
	golden.Check(t, "command", func(level *release.Active) (records []golden.Record) {
		var some [][]byte
		for _, x := range commands {
			if gate, gated := GateOf(x.format); gated && !level.Allows(gate) {
				continue
			}
			some = append(some, encode(x.c))
			records = append(records, golden.Record{Name: x.name, Data: encode(x.c)})
		}
		return append(records, golden.Record{Name: "group", Data: EncodeEntry(some[:2])})
	}, func(r golden.Record) error {
		return Each(r.Data, func(data []byte) error {
			_, _, err := Decode(data)
			return err
		})
	})
	for format := byte(LeastFormat + 1); format <= NewestFormat; format++ {
		if _, gated := GateOf(format); !gated {
			t.Errorf("format %d has no gate: members of the release before stop at it", format)
		}
	}
}
