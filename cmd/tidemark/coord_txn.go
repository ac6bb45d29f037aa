package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

// maxTxnText limits the size of a transaction's text.
const maxTxnText = 16 << 20

func (a *app) coordTxnCommand() *cobra.Command {
	var f coordFlags
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "Run a transaction of the coordination service from standard input",
		Long: `Run a transaction of the coordination service that is read from standard input:
comparisons, an empty line, the operations if all comparisons hold, an empty line, and the
operations otherwise. Each part may be empty.

A comparison is FUNCTION("KEY") OPERATOR "VALUE". The function is value, version (how often the key
was written since it was created; 0 if it does not exist), create or mod (its revisions), or lease;
the operator is =, !=, < or >. An operation is put "KEY" "VALUE", get "KEY" or del "KEY"; get and
del take --prefix, put takes --lease=ID. Quotes may be left out around words; inside them \n, \t,
\", \\ and \xNN mean the same as in Go.

The command prints the results of the operations, and whether the comparisons held.`,
		Example: `  printf '%s\n' 'version("config/colour") = "0"' '' \
    'put config/colour green' '' 'get config/colour' | tidemark coord txn`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			if a.inTerminal {
				a.say("tidemark: reading the transaction: comparisons, an empty line, what is done if " +
					"they hold, an empty line, what is done otherwise; end with Ctrl-D")
			}
			compares, then, otherwise, err := parseTxn(io.LimitReader(a.in, maxTxnText))
			if err != nil {
				return err
			}
			return a.withEtcd(ctx, &f, true, func(ctx context.Context, c *clientv3.Client) error {
				r, err := c.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
				if err != nil {
					return err
				}
				return a.printTxn(r)
			})
		}),
	}
	return a.printing(a.coordClient(cmd, &f))
}

// printTxn prints a row for each operation, or one row if there was no operation.
func (a *app) printTxn(r *clientv3.TxnResponse) error {
	list := a.list(output.Column{Name: "held"}, output.Column{Name: "revision", Number: true},
		output.Column{Name: "operation"}, output.Column{Name: "key"}, output.Column{Name: "value"},
		output.Column{Name: "mod revision", Number: true},
		output.Column{Name: "deleted", Number: true})
	row := func(operation any, rest ...any) {
		list.Row(append([]any{r.Succeeded, r.Header.Revision, operation}, rest...)...)
	}
	for _, response := range r.Responses {
		switch one := response.Response.(type) {
		case *pb.ResponseOp_ResponsePut:
			row("put", nil, nil, nil, nil)
		case *pb.ResponseOp_ResponseDeleteRange:
			row("del", nil, nil, nil, one.ResponseDeleteRange.Deleted)
		case *pb.ResponseOp_ResponseRange:
			for _, kv := range one.ResponseRange.Kvs {
				row("get", kv.Key, notNil(kv.Value), kv.ModRevision, nil)
			}
			if len(one.ResponseRange.Kvs) == 0 {
				row("get", nil, nil, nil, nil)
			}
		}
	}
	if len(r.Responses) == 0 {
		row(nil, nil, nil, nil, nil)
	}
	return list.Flush()
}

// parseTxn parses a transaction.
func parseTxn(in io.Reader) (compares []clientv3.Cmp, then, otherwise []clientv3.Op, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxTxnText)
	part := 0
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			part++
			continue
		}
		var err error
		switch part {
		case 0:
			var compare clientv3.Cmp
			if compare, err = parseCompare(line); err == nil {
				compares = append(compares, compare)
			}
		case 1, 2:
			var op clientv3.Op
			if op, err = parseOp(line); err == nil && part == 1 {
				then = append(then, op)
			} else if err == nil {
				otherwise = append(otherwise, op)
			}
		default:
			err = fmt.Errorf("a fourth part; a transaction has three")
		}
		if err != nil {
			return nil, nil, nil, exit.Usagef("line %d: %q: %w", number, line, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, nil, exit.Usagef("standard input: %w", err)
	}
	return compares, then, otherwise, nil
}

var comparison = regexp.MustCompile(
	`^(\w+)\(\s*("(?:[^"\\]|\\.)*"|[^\s()"]+)\s*\)\s*(=|!=|<|>)\s*("(?:[^"\\]|\\.)*"|\S+)$`)

func parseCompare(line string) (clientv3.Cmp, error) {
	parts := comparison.FindStringSubmatch(line)
	if parts == nil {
		return clientv3.Cmp{}, fmt.Errorf(
			`it is no comparison; one is: value("config/colour") = "green"`)
	}
	key, err := unquote(parts[2])
	if err != nil {
		return clientv3.Cmp{}, err
	}
	value, err := unquote(parts[4])
	if err != nil {
		return clientv3.Cmp{}, err
	}
	if parts[1] == "value" {
		return clientv3.Compare(clientv3.Value(key), parts[3], value), nil
	}
	if parts[1] == "lease" {
		id, err := strconv.ParseUint(value, 16, 63) // 0 means no lease
		if err != nil {
			return clientv3.Cmp{}, fmt.Errorf("%q is no lease", value)
		}
		return clientv3.Compare(clientv3.LeaseValue(key), parts[3], clientv3.LeaseID(id)), nil
	}
	of, ok := map[string]func(string) clientv3.Cmp{
		"version": clientv3.Version, "ver": clientv3.Version,
		"create": clientv3.CreateRevision, "c": clientv3.CreateRevision,
		"mod": clientv3.ModRevision, "m": clientv3.ModRevision}[parts[1]]
	if !ok {
		return clientv3.Cmp{}, fmt.Errorf("%s is none of value, version, create, mod and lease",
			parts[1])
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return clientv3.Cmp{}, fmt.Errorf("%q is no number", value)
	}
	return clientv3.Compare(of(key), parts[3], number), nil
}

var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^\s"]+`)

func parseOp(line string) (clientv3.Op, error) {
	var words []string
	var options []clientv3.OpOption
	prefix, lease := false, false
	for _, text := range word.FindAllString(line, -1) {
		if id, ok := strings.CutPrefix(text, "--lease="); ok {
			parsed, err := parseLease(id)
			if err != nil {
				return clientv3.Op{}, err
			}
			options, lease = append(options, clientv3.WithLease(parsed)), true
			continue
		}
		if text == "--prefix" {
			options, prefix = append(options, clientv3.WithPrefix()), true
			continue
		}
		text, err := unquote(text)
		if err != nil {
			return clientv3.Op{}, err
		}
		words = append(words, text)
	}
	if strings.Count(word.ReplaceAllString(line, ""), `"`) > 0 {
		return clientv3.Op{}, fmt.Errorf("a quote is not closed")
	}
	switch {
	case len(words) == 3 && words[0] == "put" && !prefix:
		return clientv3.OpPut(words[1], words[2], options...), nil
	case len(words) == 2 && words[0] == "get" && !lease:
		return clientv3.OpGet(words[1], options...), nil
	case len(words) == 2 && words[0] == "del" && !lease:
		return clientv3.OpDelete(words[1], options...), nil
	}
	return clientv3.Op{}, fmt.Errorf("it is none of put KEY VALUE, get KEY and del KEY")
}

func unquote(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		return text, nil
	}
	unquoted, err := strconv.Unquote(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", text, err)
	}
	return unquoted, nil
}
