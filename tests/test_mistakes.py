"""The list of one-line mistakes that `python tests/mutants.py` tries is about the package and the tests as they are."""

from mutants import TESTS, mistakes, mutated

ALL = list(mistakes())


def test_every_mistake_is_a_place_of_the_package():
    for one in ALL:
        assert one.new in mutated(one)
        assert one.new != one.old


def test_tests_that_should_see_them_exist():
    written = {name: (TESTS / name).read_text() for one in ALL for name in (t.partition("::")[0] for t in one.tests)}
    for one in ALL:
        for name, _, function in (test.partition("::") for test in one.tests):
            assert f"def {function}(" in written[name] or not function, (one, name, function)


def test_all_layers_have_mistakes_and_hardly_one_is_known_to_live():
    assert len(ALL) >= 150
    assert len({(one.file, one.old, one.new) for one in ALL}) == len(ALL)
    rooms = {one.file.partition("/")[0].removesuffix(".py") for one in ALL}
    assert rooms >= {"core", "interfaces", "privacy", "schedules", "algos", "envs", "data", "engine", "report", "cli"}
    assert sum(bool(one.known) for one in ALL) <= 0.05 * len(ALL)
