package group

import (
	"context"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3/tracker"

	"github.com/tidemarkdb/tidemark/range/keys"
)

type trackerProgress = tracker.Progress

const (
	stateProbe     = tracker.StateProbe
	stateReplicate = tracker.StateReplicate
	stateSnapshot  = tracker.StateSnapshot
)

// raftLogger passes on Raft's log lines. Raft's information lines are for debugging one group, and
// there are thousands of groups, so they go to debug level.
type raftLogger struct {
	log     *slog.Logger
	group   keys.PartitionID
	replica keys.ReplicaID
}

func (l raftLogger) debug(text string) { l.log.Debug(text, "group", l.group, "replica", l.replica) }
func (l raftLogger) warn(text string)  { l.log.Warn(text, "group", l.group, "replica", l.replica) }

func (l raftLogger) enabled() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }

func (l raftLogger) Debug(v ...any) {
	if l.enabled() {
		l.debug(fmt.Sprint(v...))
	}
}
func (l raftLogger) Debugf(format string, v ...any) {
	if l.enabled() {
		l.debug(fmt.Sprintf(format, v...))
	}
}
func (l raftLogger) Info(v ...any)                    { l.Debug(v...) }
func (l raftLogger) Infof(format string, v ...any)    { l.Debugf(format, v...) }
func (l raftLogger) Warning(v ...any)                 { l.Debug(v...) }
func (l raftLogger) Warningf(format string, v ...any) { l.Debugf(format, v...) }
func (l raftLogger) Error(v ...any)                   { l.warn(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any)   { l.warn(fmt.Sprintf(format, v...)) }

// Raft calls Fatal and Panic for broken invariants. The host catches the panic and marks this one
// replica failed.
func (l raftLogger) Fatal(v ...any)                 { l.Panic(v...) }
func (l raftLogger) Fatalf(format string, v ...any) { l.Panicf(format, v...) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
