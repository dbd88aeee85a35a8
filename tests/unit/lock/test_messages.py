from envpack.lock.uv import failing_requirement


def test_unknown_package_is_named_as_the_user_wrote_it():
    message = "Because no-such-thing was not found in the package registry and you require no-such-thing<2, we can"
    assert failing_requirement(message, ["numpy", "No_Such.Thing <2"]) == "No_Such.Thing <2"


def test_conflict_names_one_of_the_requirements_and_none_by_accident():
    message = "Because a==1 depends on b>=2 and you require a==1, we can conclude that you require b<2 and a==1"
    assert failing_requirement(message, ["c", "b<2", "a==1"]) in {"b<2", "a==1"}
    assert failing_requirement("something else", ["a"]) == ""
