package command

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

const (
	// The first byte of a log entry is its format. A member that does not know a format stops
	// applying, rather than applying a command in part. A command has the lowest format that can
	// express it.
	FirstFormat = 1
	// CompareFormat is for commands that compare over ranges. A comparison over a range without
	// keys is made as etcd makes it (see compare); in the format before, such a comparison always
	// held, and still does for entries of that format.
	CompareFormat = 2
	// membersFormat is for commands that change the core's members.
	membersFormat = 3
	// OptionsFormat is for ranges that are ordered, filtered or at a negative revision, and for
	// leases whose id is negative, which earlier formats refuse.
	OptionsFormat = 4

	// checkpointFormat is for checkpoints of leases.
	checkpointFormat = 5

	// groupFormat is for an entry with several commands, each preceded by its format and its length
	// (entry.go).
	groupFormat = 6

	// AuthFormat is for changes of users and roles, and for commands of a user: members that do not
	// know users would apply them without a check. The command of an unauthenticated client has the
	// format of its content: such members treat it correctly until the log enables authentication,
	// where they stop.
	AuthFormat = 7

	// ImportFormat is for the steps of imports.
	ImportFormat = 8

	// AlarmFormat is for alarms, and for the end of an import that enables authentication.
	AlarmFormat = 9

	// CompactFormat is for compactions that remove the data in several steps.
	CompactFormat = 10

	// LeastFormat is the highest format known to every version that may be in one core with this
	// version.
	LeastFormat = ImportFormat

	// NewestFormat is the highest format that this version knows. Formats above LeastFormat are
	// used when all members are known to know them, and their gates are open (package admission).
	NewestFormat = CompactFormat
)

// GateOf returns the gate of a format; gated is false for formats up to LeastFormat.
func GateOf(format byte) (gate release.Gate, gated bool) {
	switch format {
	case AlarmFormat, CompactFormat:
		return release.CoreAlarms, true
	}
	return release.Gate{}, false
}

func Encode(c *storepb.Command) ([]byte, error) {
	data := make([]byte, 1, 1+proto.Size(c))
	data[0] = FormatOf(c)
	data, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(data, c)
	if err != nil {
		return nil, fmt.Errorf("encode command: %w", err)
	}
	return data, nil
}

// FormatOf returns the lowest format that can express a command.
func FormatOf(c *storepb.Command) byte {
	if c.GetAuth().GetUser() != "" {
		return AuthFormat
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		return formatOfTxn(op.Txn)
	case *storepb.Command_LeaseGrant:
		if op.LeaseGrant.GetId() < 0 {
			return OptionsFormat
		}
	case *storepb.Command_ChangeMembers:
		return membersFormat
	case *storepb.Command_LeaseCheckpoint:
		return checkpointFormat
	case *storepb.Command_AuthChange:
		return AuthFormat
	case *storepb.Command_Import:
		if op.Import.GetEnable() != nil {
			return AlarmFormat
		}
		return ImportFormat
	case *storepb.Command_Compact:
		if op.Compact.GetEvents() > 0 || op.Compact.GetResume() {
			return CompactFormat
		}
	case *storepb.Command_AlarmChange:
		return AlarmFormat
	}
	return FirstFormat
}

func formatOfTxn(t *storepb.Txn) byte {
	format := byte(FirstFormat)
	if slices.ContainsFunc(t.GetCompare(), comparesRange) {
		format = CompareFormat
	}
	for _, ops := range [][]*storepb.Op{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetOp().(type) {
			case *storepb.Op_Range:
				if hasOptions(op.Range) {
					return OptionsFormat
				}
			case *storepb.Op_Txn:
				format = max(format, formatOfTxn(op.Txn))
			}
		}
	}
	return format
}

func comparesRange(c *storepb.Compare) bool { return len(c.GetRangeEnd()) > 0 }

// hasOptions reports whether a range has options that the first formats do not know.
func hasOptions(q *storepb.Range) bool {
	return q.GetSortOrder() != 0 || q.GetSortTarget() != 0 || q.GetMinModRevision() != 0 ||
		q.GetMaxModRevision() != 0 || q.GetMinCreateRevision() != 0 ||
		q.GetMaxCreateRevision() != 0 || int64(q.GetRevision()) < 0
}

// Decode decodes a command. The result does not alias data.
func Decode(data []byte) (c *storepb.Command, format byte, err error) {
	if len(data) == 0 {
		return nil, 0, errors.New("command is empty")
	}
	if format = data[0]; format < FirstFormat || format > NewestFormat {
		return nil, 0, fmt.Errorf(
			"command has format %d, this version knows %d to %d: a newer version wrote it",
			format, FirstFormat, NewestFormat)
	}
	if err := checkNesting(data[1:]); err != nil {
		return nil, 0, fmt.Errorf("command is malformed: %w", err)
	}
	c = &storepb.Command{}
	if err := proto.Unmarshal(data[1:], c); err != nil {
		return nil, 0, fmt.Errorf("command is malformed: %w", err)
	}
	if c.Op == nil {
		return nil, 0, errors.New("command says nothing to do: a newer version may have written it")
	}
	return c, format, nil
}
