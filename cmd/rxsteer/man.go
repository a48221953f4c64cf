package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand(e *env) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "Print a manual page, or write all of them to a folder",
		Example: `  rxsteer man apply | man -l -
  rxsteer man -w /usr/local/share/man/man1`,
		GroupID: groupServe,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true
			if dir != "" {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return fmt.Errorf("write manual pages: %w", err)
				}
				return writeManuals(root, dir)
			}
			page := root
			if len(args) == 1 {
				found, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usage("no command %q", args[0])
				}
				page = found
			}
			text, err := manual(page)
			if err != nil {
				return err
			}
			_, err = e.stdout.Write(text)
			return err
		},
	}
	c.Flags().StringVarP(&dir, "write", "w", "", "write every page to the folder `DIR`, which is made")
	c.MarkFlagDirname("write")
	return c
}

func manual(c *cobra.Command) ([]byte, error) {
	var b bytes.Buffer
	// A fixed date: the same program makes the same page.
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "rxsteer", Manual: "rxsteer"}
	if err := doc.GenMan(c, header, &b); err != nil {
		return nil, fmt.Errorf("make manual page of %s: %w", c.CommandPath(), err)
	}
	return b.Bytes(), nil
}

func writeManuals(c *cobra.Command, dir string) error {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := writeManuals(sub, dir); err != nil {
				return err
			}
		}
	}
	text, err := manual(c)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write manual page: %w", err)
	}
	return nil
}
