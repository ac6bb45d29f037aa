package serving

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

// Log has the values of --log-level and --log-format.
type Log struct {
	level, format string
}

// Register adds the flags.
func (l *Log) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.level, "log-level", "warn", "debug, info, warn or error")
	cmd.Flags().StringVar(&l.format, "log-format", "text", "text or json")
	_ = cmd.RegisterFlagCompletionFunc("log-level",
		cobra.FixedCompletions([]string{"debug", "info", "warn", "error"},
			cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// Logger makes the logger for the values of the flags.
func (l *Log) Logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil || strings.ContainsAny(l.level, "+-") {
		return nil, exit.Usagef("--log-level %q: use debug, info, warn or error", l.level)
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: plainErrors}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(plainJSON{out}, options)), nil
	}
	return nil, exit.Usagef("--log-format %q: use text or json", l.format)
}

// plainJSON escapes characters that JSON allows and on which a terminal would act.
type plainJSON struct{ out io.Writer }

// Write implements io.Writer. A handler writes whole lines.
func (p plainJSON) Write(line []byte) (int, error) {
	if _, err := p.out.Write(output.PlainJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// plainErrors logs an error as its text. The handlers would print the stack trace that some errors
// have.
func plainErrors(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(exit.Message(err))
	}
	return a
}
