package store

import (
	"github.com/tidemarkdb/tidemark/placement/store/admission"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/keeper"
	"github.com/tidemarkdb/tidemark/placement/store/reading"
)

// Limits of commands, and the errors of commands and reads; see package command.
const (
	MaxCommandBytes = command.MaxBytes
	NewestFormat    = command.NewestFormat
	LeastFormat     = command.LeastFormat
)

var (
	ErrNotLeader      = command.ErrNotLeader
	ErrOutcomeUnknown = command.ErrOutcomeUnknown
	ErrClosed         = command.ErrClosed
	ErrCompacted      = command.ErrCompacted
	ErrFutureRevision = command.ErrFutureRevision
	ErrLeaseNotFound  = command.ErrLeaseNotFound
	ErrLeaseExists    = command.ErrLeaseExists
	ErrKeyNotFound    = command.ErrKeyNotFound
	ErrDuplicateKey   = command.ErrDuplicateKey
	ErrInvalid        = command.ErrInvalid
	ErrTooLarge       = command.ErrTooLarge
	ErrOverloaded     = command.ErrOverloaded
	ErrImporting      = command.ErrImporting
	ErrNotEmpty       = command.ErrNotEmpty
	ErrOldMembers     = command.ErrOldMembers
	ErrNoSpace        = command.ErrNoSpace
	ErrCorrupt        = command.ErrCorrupt
)

type (
	NotLeaderError = command.NotLeaderError
	CompactedError = command.CompactedError
	Leadership     = execute.Leadership
	Quota          = admission.Quota
	View           = reading.View
	LeaseInfo      = keeper.LeaseInfo
)

// Functions of packages command and execute.
var (
	ReadOnly        = command.ReadOnly
	ConfigurationOf = command.ConfigurationOf
	PrefixRange     = command.PrefixRange
	WithClient      = execute.WithClient
)
