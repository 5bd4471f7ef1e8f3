"""The picture: loss, step and nodes over time, with every kill, resume and rejoin marked."""
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen first)
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

WORLD = {1: "#e07b00", 2: "#1f5fbf"}
GREY = "#b9bec7"
MARKS = {  # event: colour, marker, text of the legend
    "kill": ("#c81e1e", "X", "killed"),
    "notice": ("#d97706", "v", "noticed by the other node"),
    "resume": ("#15803d", "o", "resumed from a commit"),
    "rejoin": ("#7c3aed", "D", "lost node started again"),
}


def segments(scene):
    """Stretches of steps at one world size: [(world, [(time, step, loss)])], in order."""
    found = []
    for line in scene.run.lines:
        if line.get("event") == "start":
            found.append((line["world"], []))
        elif "loss" in line:
            found[-1][1].append((line["time"] - scene.begun, line["step"], line["loss"]))
    return [(world, points) for world, points in found if points]


def events(scene):
    """[(kind, time, label)] in order of time."""
    found = []
    for k in scene.kills:
        found.append(("kill", k.at - scene.begun, f"{k.nodes} killed"))
        found.append(("resume", k.at + k.first_step - scene.begun, ""))
    for r in scene.rejoins:
        found.append(("rejoin", r.at - scene.begun, f"{r.node} started"))
        found.append(("resume", r.at + r.first_step - scene.begun, ""))
    return sorted(found, key=lambda e: e[1])


def lives(scene, node):
    """[(from, to)] of a node's agents, in seconds of the scene."""
    end = scene.ended - scene.begun
    kills = [k.at - scene.begun for k in scene.kills if node in k.nodes.split(" and ")]
    starts = [0.0, *(r.at - scene.begun for r in scene.rejoins if r.node == node)]
    starts += kills[len(starts) - 1:]  # scene 2 starts the node again at once
    return list(zip(starts, [*kills, end]))


def trains(scene, node, world, begun):
    return world == 2 or any(a <= begun < b for a, b in lives(scene, node))


def draw_course(top, middle, scene, expected):
    """Loss and step of one scene, coloured by world size."""
    for world, points in segments(scene):
        time, step, loss = zip(*points)
        top.plot(time, [expected[s] for s in step], color=GREY, lw=4.5, solid_capstyle="butt")
        top.plot(time, loss, color=WORLD[world], lw=1.3)
        middle.plot(time, step, color=WORLD[world], lw=2)
    for kill in scene.kills:
        a = kill.at - scene.begun
        for axes in (top, middle):
            axes.axvspan(a, a + kill.first_step, color="#c81e1e", alpha=0.07, lw=0)
        text = f"training\nagain after\n{kill.first_step:.1f} s\n\n{kill.lost} steps\nlost"
        if kill.noticed is not None:
            text = f"noticed\nafter {kill.noticed:.1f} s\n\n{text}"
        middle.text(a + kill.first_step / 2, 0.96, text, fontsize=8, ha="center", va="top",
                    color="#7f1d1d", transform=middle.get_xaxis_transform())
    at = [p for _, points in segments(scene) for p in points]
    for kind, time, label in events(scene):
        colour, marker, _ = MARKS[kind]
        near = (min if kind == "resume" else max)(
            (p for p in at if (p[0] >= time - 1e-3 if kind == "resume" else p[0] <= time)),
            key=lambda p: p[0])
        for axes in (top, middle):
            axes.axvline(time, color=colour, lw=0.9, ls=":" if kind == "resume" else "-", alpha=0.7)
        middle.plot(time, near[1], marker=marker, color=colour, ms=7, mec="white", zorder=5)
        top.plot(time, near[2], marker=marker, color=colour, ms=7, mec="white", zorder=5)
        if label:
            top.annotate(label, (time, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                         textcoords="offset points", rotation=20, fontsize=8, color=colour)


def draw_nodes(axes, scene):
    for row, node in enumerate("BA"):
        for a, b in lives(scene, node):
            axes.barh(row, b - a, left=a, height=0.5, color="#e5e7eb")
        for world, points in segments(scene):
            a, b = points[0][0], points[-1][0]
            if trains(scene, node, world, a):
                axes.barh(row, b - a, left=a, height=0.5, color=WORLD[world])
        for kill in scene.kills:
            hit = node in kill.nodes.split(" and ")
            if hit or kill.noticed is not None:
                colour, marker, _ = MARKS["kill" if hit else "notice"]
                axes.plot(kill.at - scene.begun + (0 if hit else kill.noticed), row, marker=marker,
                          color=colour, ms=8, mec="white", zorder=5)
    axes.set_yticks([0, 1], ["node B", "node A"])
    axes.set_ylim(-0.5, 1.5)
    axes.set_xlabel("seconds since the start of the scene")


def legend(figure):
    entries = [Line2D([], [], color=WORLD[2], lw=2, label="two nodes train"),
               Line2D([], [], color=WORLD[1], lw=2, label="one node trains alone"),
               Line2D([], [], color=GREY, lw=5, label="run without a fault, same step")]
    entries += [Line2D([], [], color=c, marker=m, ls="", ms=7, label=text)
                for c, m, text in MARKS.values()]
    entries += [Patch(color="#c81e1e", alpha=0.12, label="no training after a kill"),
                Patch(color="#e5e7eb", label="node up, not training")]
    figure.legend(handles=entries, loc="lower center", ncols=5, frameon=False, fontsize=9)


def draw(played, path):
    elastic, reference, restart = played
    expected = {line["step"]: line["loss"] for line in reference.run.steps()}
    widths = [s.ended - s.begun for s in (elastic, restart)]
    figure, grid = plt.subplots(
        3, 2, figsize=(13, 8), sharex="col", sharey="row",
        gridspec_kw={"width_ratios": [widths[0], max(widths[1], widths[0] / 3)],
                     "height_ratios": [3, 3, 1], "hspace": 0.08, "wspace": 0.04})
    for column, scene in enumerate((elastic, restart)):
        top, middle, bottom = grid[:, column]
        draw_course(top, middle, scene, expected)
        draw_nodes(bottom, scene)
        top.set_yscale("log")
        top.set_title(scene.title, loc="left", fontsize=11, pad=34)
        top.set_xlim(0, scene.ended - scene.begun)
        for axes in (top, middle, bottom):
            axes.grid(alpha=0.25)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
    grid[0, 0].set_ylabel("training loss (log scale)")
    grid[1, 0].set_ylabel("training step")
    figure.suptitle("A training run that loses its nodes and goes on from the last commit",
                    x=0.065, ha="left", fontsize=14, fontweight="bold")
    figure.subplots_adjust(left=0.065, right=0.985, top=0.855, bottom=0.155)
    legend(figure)
    figure.savefig(path, dpi=130)
    plt.close(figure)
