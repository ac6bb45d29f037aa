package recentlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
)

// hidden are the attributes whose values are left out of Lines, because the values are keys of
// users.
var hidden = []string{"key", "range_end", "start", "end", "span", "prefix"}

// quoted matches a quoted text. Keys of users are quoted in messages and errors. The end of a text
// may have cut a key.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"|\\?$)`)

// withoutKeys returns an attribute of a line, or of its message, without keys of users: it removes
// values that are keys, and the quoted parts of texts.
func withoutKeys(_ []string, a slog.Attr) slog.Attr {
	if slices.Contains(hidden, a.Key) {
		return slog.String(a.Key, "(left out)")
	}
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		v := a.Value.Any()
		if hasBytes(reflect.TypeOf(v)) {
			return slog.String(a.Key, "(left out)")
		}
		text = fmt.Sprintf("%+v", v)
	default:
		return a
	}
	return slog.String(a.Key, quoted.ReplaceAllString(text, "(left out)"))
}

// hasBytes reports whether a type is a list of bytes, or a list of such lists.
func hasBytes(t reflect.Type) bool {
	for t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		if t = t.Elem(); t.Kind() == reflect.Uint8 {
			return true
		}
	}
	return false
}

// Handler is a slog.Handler that writes to two handlers.
type Handler struct{ log, recent slog.Handler }

// NewHandler makes a handler that writes records to log, if log accepts them. It also writes these
// records, and all records from the level Info on, to lines. Keys of users are left out of lines.
func NewHandler(log slog.Handler, lines *Lines) *Handler {
	return &Handler{log, slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug,
		ReplaceAttr: withoutKeys})}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.log.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	err := h.recent.Handle(ctx, r)
	if h.log.Enabled(ctx, r.Level) {
		err = errors.Join(err, h.log.Handle(ctx, r))
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.log.WithAttrs(attrs), h.recent.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.log.WithGroup(name), h.recent.WithGroup(name)}
}
